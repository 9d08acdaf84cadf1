//! What is asked for, and what is answered.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use gambeson_proto::directory::date;
use gambeson_site::directory::now;
use hyper::{Method, StatusCode};
use maud::{Markup, html};
use pki_types::CertificateDer;

use super::admission::{Admission, Seldom, Unwanted, Wanted};
use super::frame::{Frame, LOG, OVERVIEW, PARTITIONS};
use super::inventory::{self, Inventory, PARTITION, Search};
use super::live::Live;
use super::metrics::Metrics;
use super::server::Answer;
use super::{label, log, overview, partitions};
use crate::{Database, Error, Event, Who};

/// A request, as far as anything goes by it.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) from: IpAddr,
    /// What was shown; whoever has shown it has proved to own it.
    pub(super) chain: Option<Arc<[CertificateDer<'static>]>>,
}

/// Who answers.
pub(super) struct Office {
    database: Database,
    admission: Admission,
    host: String,
    live: Arc<dyn Live>,
    metrics: Metrics,
    seldom: Seldom,
    say: Arc<dyn Fn(&str) + Send + Sync>,
}

const HTML: &str = "text/html; charset=utf-8";

impl Office {
    pub(super) fn new(
        database: Database,
        admission: Admission,
        host: String,
        live: Arc<dyn Live>,
        metrics: Metrics,
        say: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Self {
        Office { database, admission, host, live, metrics, seldom: Seldom::default(), say }
    }

    pub(super) fn answer(&self, asked: &Asked) -> Answer {
        let wanted = if asked.path == "/metrics" { Wanted::Metrics } else { Wanted::Page };
        let who = match self.admission.admit(asked.chain.as_deref(), asked.from, wanted) {
            Ok(who) => who,
            Err(unwanted) => return self.turn_away(&unwanted, asked),
        };
        if asked.method != Method::GET && asked.method != Method::HEAD {
            let sentence =
                "nothing can be changed here: this page answers GET and HEAD alone, and `gambeson key` changes things";
            return self.sentence(StatusCode::METHOD_NOT_ALLOWED, "Read only", sentence, Some(&who));
        }
        let answered = match &*asked.path {
            "/" => self.overview(&who),
            "/label" => self.label(asked, &who),
            "/log" => self.log(asked, &who),
            "/partitions" => self.partitions(&who),
            "/metrics" => self.metrics.text(&self.database, &*self.live).map(|text| Answer {
                status: StatusCode::OK,
                kind: "application/openmetrics-text; version=1.0.0; charset=utf-8",
                body: text,
            }),
            _ => Ok(self.sentence(StatusCode::NOT_FOUND, "Not here", "there is no such page", Some(&who))),
        };
        answered.unwrap_or_else(|cause| {
            let (status, sentence) = (StatusCode::INTERNAL_SERVER_ERROR, cause.to_string());
            (self.say)(&format!("the officers' page cannot show {}: {sentence}", asked.path));
            self.sentence(status, "Not to be shown", &sentence, Some(&who))
        })
    }

    /// Who is not let in is told why. Whom the site knows is in the log, as everybody else is who is refused.
    fn turn_away(&self, unwanted: &Unwanted, asked: &Asked) -> Answer {
        match &unwanted.who {
            Some(who) if self.seldom.now(&who.name) => {
                let event = Event::refusal(who, "page", unwanted.reason);
                // It is no change that is refused, but something that was done.
                if let Err(cause) = self.database.change(move |transaction| transaction.log(&event)) {
                    (self.say)(&format!("a refusal by the officers' page is not in the log: {cause}"));
                }
            }
            None if self.seldom.now("strangers") => {
                (self.say)(&format!("the officers' page has refused {}: {}", asked.from, unwanted.sentence));
            }
            _ => {}
        }
        self.sentence(StatusCode::FORBIDDEN, "You are not let in", &unwanted.sentence, None)
    }

    fn overview(&self, who: &Who) -> Result<Answer, Error> {
        let inventory = Inventory::read(&self.database)?;
        Ok(self.page(OVERVIEW, &overview::page(&inventory, &*self.live), who, inventory.now, inventory.partitions > 0))
    }

    fn label(&self, asked: &Asked, who: &Who) -> Result<Answer, Error> {
        let name = asked.word("name");
        let Some((label, rows)) = inventory::label(&self.database, &name, label::ROWS)? else {
            let sentence = format!("there is no label \"{name}\"; its rows in the log stay when one is deleted");
            return Ok(self.sentence(StatusCode::NOT_FOUND, "No such label", &sentence, Some(who)));
        };
        let now = now();
        Ok(self.page(&label.name, &label::page(&label, &rows, now), who, now, self.has_partitions()?))
    }

    fn log(&self, asked: &Asked, who: &Who) -> Result<Answer, Error> {
        let (label, person, event) = (asked.word("label"), asked.word("who"), asked.word("event"));
        let search = Search { label: label.trim(), who: person.trim(), event: event.trim() };
        let before = asked.word("before").parse::<u64>().ok();
        let found = self.database.read(|snapshot| search.look(snapshot, before.unwrap_or(u64::MAX), log::ROWS))?;
        let now = now();
        Ok(self.page(LOG, &log::page(&search, &found, before, now), who, now, self.has_partitions()?))
    }

    fn partitions(&self, who: &Who) -> Result<Answer, Error> {
        let names = self.database.read(|snapshot| snapshot.names(PARTITION))?;
        Ok(self.page(PARTITIONS, &partitions::page(&names), who, now(), !names.is_empty()))
    }

    fn has_partitions(&self) -> Result<bool, Error> {
        self.database.read(|snapshot| Ok(!snapshot.names(PARTITION)?.is_empty()))
    }

    fn page(&self, title: &str, content: &Markup, who: &Who, now: u64, partitions: bool) -> Answer {
        let frame = Frame { host: &self.host, title, visitor: Some(&who.name), now, partitions };
        Answer { status: StatusCode::OK, kind: HTML, body: frame.around(content) }
    }

    fn sentence(&self, status: StatusCode, title: &str, sentence: &str, who: Option<&Who>) -> Answer {
        let (visitor, now) = (who.map(|who| &*who.name), now());
        let frame = Frame { host: &self.host, title, visitor, now, partitions: false };
        let content = html! { p { (capital(sentence)) "." } p.aside { (date(now)) } };
        Answer { status, kind: HTML, body: frame.around(&content) }
    }
}

/// A sentence as it stands by itself.
fn capital(sentence: &str) -> String {
    let mut characters = sentence.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

impl Asked {
    /// A word of the query; empty if it is not there.
    fn word(&self, name: &str) -> String {
        let mut words = form_urlencoded::parse(self.query.as_bytes());
        words.find(|(called, _)| called == name).map_or(Cow::Borrowed(""), |(_, value)| value).into_owned()
    }
}
