//! Fig. 6 and 7 of the SKC paper: jobs that share their processors.

use super::figure::{Figure, Panel, Scale, Series, Shape};
use super::key_cache::{Keys, percent, preset};
use super::request_reply::RequestReply;
use super::traces::{BENCHMARKS, Met, Trace, figures, met};
use super::{Finding, Outcome, Setting, Table, alone, mean, us};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::process::{Config as Processes, Scheduler};
use crate::security::{BufferReplacement, ListOrder, PrefetchConfig};

/// Seeds of each point, as the order of processes is by chance: five for a window; for whole traces, which take a hundred
/// times as long, one.
fn seeds(whole: bool) -> std::ops::RangeInclusive<u64> {
    1..=if whole { 1 } else { 5 }
}

/// Three copies of each job, every run with each seed; means over the seeds.
fn mixed(setting: &Setting<'_>, traces: &[Trace], runs: &[Experiment], whole: bool) -> Result<Vec<Met>, Error> {
    let seeds = seeds(whole);
    let traces: Vec<Trace> = traces.iter().flat_map(|trace| std::iter::repeat_n(trace.clone(), 3)).collect();
    let seeded: Vec<Experiment> =
        runs.iter().flat_map(|run| seeds.clone().map(move |seed| Experiment { seed, ..run.clone() })).collect();
    let values = setting.each(&seeded, |experiment| met(setting, experiment, &traces))?;
    let average = |seeds: &[Met]| Met {
        latency: mean(seeds.iter().map(|met| met.latency)),
        hits: seeds.iter().map(|met| met.hits).sum::<Option<f64>>().map(|sum| sum / seeds.len() as f64),
        ended: mean(seeds.iter().map(|met| met.ended)),
    };
    Ok(values.chunks(seeds.count()).map(average).collect())
}

/// The preset with a scheduler and an adapter.
fn under(scheduler: Scheduler, keys: Keys) -> Experiment {
    let mut experiment = Experiment { security: keys.config(), ..preset() };
    processes(&mut experiment).scheduler = scheduler;
    experiment
}

fn processes(experiment: &mut Experiment) -> &mut Processes {
    &mut experiment.replay.as_mut().expect("the preset replays traces").processes
}

/// Hits in per cent; none are none.
fn points(met: &Met) -> f64 {
    100.0 * met.hits.unwrap_or(0.0)
}

const SCHEDULERS: [(&str, Scheduler); 5] = [
    ("local", Scheduler::Local),
    ("SB", Scheduler::SpinBlock),
    ("DCS-SB", Scheduler::DcsSpinBlock),
    ("PB", Scheduler::PeriodicBoost),
    ("gang", Scheduler::Gang),
];
const KEYS: [Keys; 4] = [Keys::Plain, Keys::Uncached, Keys::Cached(10, 0), Keys::Cached(10, 8)];

/// Fig. 6.
pub(super) fn schedulers(setting: &Setting<'_>) -> Result<Outcome, Error> {
    let claims = [("Fig. 6a, 6b", "prefetching under schedulers"), ("Fig. 6c, 6d", "prefetching under schedulers")];
    figures(setting, &BENCHMARKS, &claims, |traces, whole| {
        let (many, few) = (by_scheduler(setting, &traces[..5], whole)?, by_scheduler(setting, &traces[5..], whole)?);
        let load = RequestReply::default();
        let with_load = [traces[5].clone(), Trace::made(load.job(), format!("{load:?}"))];
        let with_load = by_scheduler(setting, &with_load, whole)?;
        let mut outcome = Outcome::default();
        for (names, values) in LOADS.into_iter().zip([&many, &with_load, &few]) {
            outcome.figures.extend(by_scheduler_figures(names, values));
        }
        outcome.findings.push(gain(
            "Fig. 6a",
            &many,
            "the same direction, fewer points: the gang scheduler leaves nothing to prefetch here, and with SB processes \
             change seldom; each point saves more of the latency than in the paper",
        ));
        outcome.findings.push(gain(
            "Fig. 6c",
            &few,
            "three FT alone, as SPECjbb2000 is not to be had; FT speaks to 15 others in turn, more than cache and buffer \
             hold",
        ));
        outcome.findings.extend(completion(&many));
        let ours = format!("3 x FT and its stand-in: {}", gained(&with_load).2);
        let jbb = Finding::missing("Fig. 6c, 6d", "3 x FT and SPECjbb2000: as Fig. 6a", alone::JBB).with(ours);
        outcome.findings.push(jbb);
        if !whole {
            outcome.tables.push(sensitivity(setting, &traces[..5])?);
        }
        Ok(outcome)
    })
}

/// By scheduler, and there by adapter.
fn by_scheduler(setting: &Setting<'_>, traces: &[Trace], whole: bool) -> Result<Vec<Met>, Error> {
    let runs: Vec<Experiment> = SCHEDULERS.iter().flat_map(|&(_, s)| KEYS.map(|keys| under(s, keys))).collect();
    mixed(setting, traces, &runs, whole)
}

/// Names and titles of Fig. 6: latency and completion of each load.
const LOADS: [[(&str, &str); 2]; 3] = [
    [
        ("skc-fig-6a", "Fig. 6a: latency and hits by scheduler, 3 x CG, MG, LU, SP, BT"),
        ("skc-fig-6b", "Fig. 6b: completion by scheduler, 3 x CG, MG, LU, SP, BT"),
    ],
    [
        ("skc-fig-6c", "Fig. 6c: latency and hits by scheduler, 3 x FT and request-reply (in place of SPECjbb2000)"),
        ("skc-fig-6d", "Fig. 6d: completion by scheduler, 3 x FT and request-reply (in place of SPECjbb2000)"),
    ],
    [
        ("skc-fig-6c-ft", "Fig. 6c with 3 x FT alone: latency and hits by scheduler"),
        ("skc-fig-6d-ft", "Fig. 6d with 3 x FT alone: completion by scheduler"),
    ],
];

fn by_scheduler_figures([latency, completion]: [(&'static str, &'static str); 2], values: &[Met]) -> [Figure; 2] {
    let column = |adapter: usize| values.chunks(KEYS.len()).map(move |row| row[adapter]);
    let with_mean = |adapter: usize, of: &dyn Fn(&Met) -> f64| {
        let values: Vec<f64> = column(adapter).map(|met| of(&met)).collect();
        let mean = mean(values.iter().copied());
        (Series::new(KEYS[adapter].name(), values.into_iter().chain([mean])), mean)
    };
    let us = |met: &Met| met.latency / 1e3;
    let names = SCHEDULERS.map(|(name, _)| name);
    let ([(plain, _), (uncached, _)], (cached, cached_mean), (buffered, _)) =
        ([0, 1].map(|adapter| with_mean(adapter, &us)), with_mean(2, &us), with_mean(3, &us));
    let ((hits, hits_mean), (buffered_hits, _)) = (with_mean(2, &points), with_mean(3, &points));
    let at_mean = SCHEDULERS.len();
    let latencies = vec![plain, uncached, cached, buffered.said([(at_mean, 0.95 * cached_mean)])];
    // Where so many are left to gain.
    let said = Some((at_mean, hits_mean + 13.0)).filter(|&(_, share)| share <= 100.0);
    let hits = vec![hits, buffered_hits.said(said)];
    let ended =
        (0..KEYS.len()).map(|adapter| Series::new(KEYS[adapter].name(), column(adapter).map(|met| met.ended / 1e6)));
    let places = names.into_iter().chain(["mean"]);
    let panels = vec![
        Panel::new("mean latency, µs", Scale::Linear, latencies),
        Panel::new("share of hits, %", Scale::Percent, hits),
    ];
    let (a, b) = (latency, completion);
    [
        Figure::new(a.0, a.1, Shape::Bars, ("scheduler", places), panels)
            .beside("paper (5 % and 13 points from SKC-10's mean here)"),
        Figure::new(
            b.0,
            b.1,
            Shape::Bars,
            ("scheduler", names),
            vec![Panel::new("completion, s", Scale::Logarithmic, ended.collect())],
        ),
    ]
}

/// What the buffer changes, on average over the schedulers: % of latency, points of hits, and a text with more.
fn gained(values: &[Met]) -> (f64, f64, String) {
    let gain = |row: &[Met]| (100.0 * (row[3].latency / row[2].latency - 1.0), points(&row[3]) - points(&row[2]));
    let rows: Vec<(f64, f64)> = values.chunks(4).map(gain).collect();
    let (latency, hits) = (mean(rows.iter().map(|row| row.0)), mean(rows.iter().map(|row| row.1)));
    let ((sb, sb_hits), (dcs, dcs_hits)) = (rows[1], rows[2]);
    let text = format!(
        "{latency:.0} % at {hits:+.1} points on average; SB {sb:.0} % at {sb_hits:+.1}, DCS-SB {dcs:.0} % at {dcs_hits:+.1}"
    );
    (latency, hits, text)
}

fn gain(figure: &str, values: &[Met], reason: &str) -> Finding {
    let (latency, hits, ours) = gained(values);
    let agrees = (-8.0..=-2.0).contains(&latency) && (8.0..=18.0).contains(&hits);
    let claim = "the buffer reduces latency by 5 % on average, with about 13 points more hits";
    Finding::new(figure, claim, ours, agrees, reason)
}

/// Fig. 6b.
fn completion(values: &[Met]) -> [Finding; 2] {
    let ended: Vec<f64> = values.chunks(4).map(|row| row[2].ended).collect();
    let text: Vec<String> =
        SCHEDULERS.iter().zip(&ended).map(|((name, _), us)| format!("{name} {:.2} s", us / 1e6)).collect();
    let longest = ended[0] >= ended.iter().copied().fold(0.0, f64::max);
    let shortest = ended[1].min(ended[2]) <= ended.iter().copied().fold(f64::MAX, f64::min);
    let boost = &values[12..16];
    [
        Finding::new(
            "Fig. 6b",
            "DCS-SB and SB have the shortest completion, local the longest",
            text.join(", "),
            longest && shortest,
            "local is the longest. Gang is the shortest here: it runs a job on all its nodes at once, so that nobody waits \
             for who is off its processor, and today's processors compute little between messages",
        ),
        Finding::new(
            "Fig. 6b",
            "under PB, completion without a cache is even shorter: the order of processes is chaotic",
            format!("{:.2} s without, {:.2} s with", boost[1].ended / 1e6, boost[2].ended / 1e6),
            boost[1].ended < boost[2].ended,
            "by chance, as the paper says",
        ),
    ]
}

/// What other values of what the paper leaves open would make of Fig. 6a under DCS-SB.
fn sensitivity(setting: &Setting<'_>, traces: &[Trace]) -> Result<Table, Error> {
    type Buffer = fn(&mut PrefetchConfig);
    type Process = fn(&mut Processes);
    let buffers: [(&str, Buffer); 6] = [
        ("preset", |_| {}),
        ("list of 32 keys", |b| b.list_len = 32),
        ("most used key first", |b| b.order = ListOrder::Frequent),
        ("another process's keys flushed", |b| b.replacement = BufferReplacement::Flush),
        ("one key an arrival", |b| b.keys = 1),
        ("500 ns between keys of a burst", |b| b.interval_ns = 500.0),
    ];
    let schedules: [(&str, Process); 7] = [
        ("quantum of 10 ms", |p| p.quantum_us = 10_000.0),
        ("quantum of 200 ms", |p| p.quantum_us = 200_000.0),
        ("context switch of 1 us", |p| p.context_switch_us = 1.0),
        ("context switch of 20 us", |p| p.context_switch_us = 20.0),
        ("interrupt of 1 us", |p| p.interrupt_us = 1.0),
        ("interrupt of 20 us", |p| p.interrupt_us = 20.0),
        ("computation 10 times as long", |p| p.gap_scale = 10.0),
    ];
    let with = |change: &dyn Fn(&mut Experiment)| {
        [Keys::Cached(10, 0), Keys::Cached(10, 8)].map(|keys| {
            let mut experiment = under(Scheduler::DcsSpinBlock, keys);
            change(&mut experiment);
            experiment
        })
    };
    let mut names = Vec::new();
    let mut runs = Vec::new();
    for (name, change) in buffers {
        names.push(name);
        runs.extend(with(&|experiment| {
            if let Some(buffer) = &mut experiment.security.prefetch {
                change(buffer);
            }
        }));
    }
    for (name, change) in schedules {
        names.push(name);
        runs.extend(with(&|experiment| change(processes(experiment))));
    }
    let values = mixed(setting, traces, &runs, false)?;
    let title = "Fig. 6a under DCS-SB with other values, a cache of 10 and a buffer of 8 keys";
    let head = ["what is other", "SKC-10", "hits", "with buffer", "hits", "buffer saves", "points"];
    let mut table = Table::new(title, &head);
    for (name, row) in names.into_iter().zip(values.chunks(2)) {
        let (without, with) = (&row[0], &row[1]);
        table.row([
            name.into(),
            us(without.latency),
            percent(without.hits),
            us(with.latency),
            percent(with.hits),
            format!("{:.1} %", 100.0 * (1.0 - with.latency / without.latency)),
            format!("{:+.1}", points(with) - points(without)),
        ]);
    }
    Ok(table)
}

/// Fig. 7.
pub(super) fn sizes(setting: &Setting<'_>) -> Result<Outcome, Error> {
    let claims = ["Fig. 7a", "Fig. 7b", "Fig. 7c", "Fig. 7d"].map(|figure| (figure, "sizes of cache and buffer"));
    figures(setting, &BENCHMARKS[..5], &claims, |traces, whole| by_size(setting, traces, whole))
}

fn by_size(setting: &Setting<'_>, traces: &[Trace], whole: bool) -> Result<Outcome, Error> {
    const CACHES: [u32; 7] = [5, 10, 15, 20, 25, 30, 40];
    const BUFFERS: [u32; 5] = [0, 1, 2, 4, 8];
    const SMALL_AND_LARGE: [u32; 2] = [5, 20];
    let mut drawn = Vec::new();
    let mut sweeps = Vec::new();
    let panels = |latencies, hits| {
        vec![
            Panel::new("mean latency, µs", Scale::Linear, latencies),
            Panel::new("share of hits, %", Scale::Percent, hits),
        ]
    };
    for (scheduler, [(by_cache, of_cache), (by_buffer, of_buffer)]) in [
        (
            Scheduler::DcsSpinBlock,
            [
                ("skc-fig-7a", "Fig. 7a: DCS-SB, 3 x CG, MG, LU, SP, BT, by the keys of the cache"),
                ("skc-fig-7b", "Fig. 7b: DCS-SB, 3 x CG, MG, LU, SP, BT, by the keys of the buffer"),
            ],
        ),
        (
            Scheduler::Gang,
            [
                ("skc-fig-7c", "Fig. 7c: gang, 3 x CG, MG, LU, SP, BT, by the keys of the cache"),
                ("skc-fig-7d", "Fig. 7d: gang, 3 x CG, MG, LU, SP, BT, by the keys of the buffer"),
            ],
        ),
    ] {
        let runs: Vec<_> = CACHES
            .iter()
            .flat_map(|&cache| [0, 2].map(|buffer| under(scheduler, Keys::Cached(cache, buffer))))
            .collect();
        let caches = mixed(setting, traces, &runs, whole)?;
        let series = |of: fn(&Met) -> f64| {
            let values = |buffer: usize| caches.chunks(2).map(move |row| of(&row[buffer]));
            vec![Series::new("without buffer", values(0)), Series::new("with a buffer of 2", values(1))]
        };
        let places = ("keys of the cache", CACHES);
        let panels_by_cache = panels(series(|met| met.latency / 1e3), series(points));
        drawn.push(Figure::new(by_cache, of_cache, Shape::Lines, places, panels_by_cache));
        let runs: Vec<_> = SMALL_AND_LARGE
            .iter()
            .flat_map(|&cache| BUFFERS.map(|buffer| under(scheduler, Keys::Cached(cache, buffer))))
            .collect();
        let buffers = mixed(setting, traces, &runs, whole)?;
        // From a buffer of 1 key to one of 8.
        let series = |of: fn(&Met) -> f64, said: f64| {
            let by_cache = SMALL_AND_LARGE.iter().zip(buffers.chunks(BUFFERS.len()));
            let series = by_cache.map(|(cache, row)| {
                let series = Series::new(Keys::Cached(*cache, 0).name(), row.iter().map(of));
                let from = of(&row[1]);
                let is_said = *cache == 20 && scheduler == Scheduler::DcsSpinBlock;
                if is_said { series.said([(BUFFERS.len() - 1, from + said)]) } else { series }
            });
            series.collect()
        };
        let panels_by_buffer = panels(series(|met| met.latency / 1e3, -0.17), series(points, 2.8));
        drawn.push(
            Figure::new(by_buffer, of_buffer, Shape::Lines, ("keys of the buffer", BUFFERS), panels_by_buffer)
                .beside("paper (0.17 µs and 2.8 points from a buffer of 1 here)"),
        );
        sweeps.push((caches, buffers));
    }
    let (caches, buffers) = &sweeps[0];
    let gain = |cache: usize| points(&caches[2 * cache + 1]) - points(&caches[2 * cache]);
    let falls =
        caches.chunks(2).map(|row| row[0].latency).collect::<Vec<_>>().windows(2).all(|two| two[1] < two[0] * 1.02);
    let small = (buffers[1].latency - buffers[4].latency, points(&buffers[4]) - points(&buffers[1]));
    let large = (buffers[6].latency - buffers[9].latency, points(&buffers[9]) - points(&buffers[6]));
    let (gang, gang_buffers) = &sweeps[1];
    let flat = gang[4].latency / gang[gang.len() - 2].latency - 1.0;
    let first = gang[0].latency / gang[4].latency - 1.0;
    let by_buffer = gang_buffers[5].latency / gang_buffers[9].latency - 1.0;
    let findings = vec![
        Finding::new(
            "Fig. 7a",
            "DCS-SB: latency falls and hits rise with the cache; a buffer of 2 gains less the larger the cache",
            format!("buffer's gain {:.1} points with 5 keys, {:.1} with 20, {:.1} with 40", gain(0), gain(3), gain(6)),
            falls && gain(0) > gain(6),
            "",
        ),
        Finding::new(
            "Fig. 7b",
            "a buffer of 8 in place of 1 gains but 0.17 us and 2.8 points with 20 keys",
            format!(
                "{:.2} us and {:.1} points with 20 keys; {:.2} us and {:.1} points with 5",
                large.0 / 1e3,
                large.1,
                small.0 / 1e3,
                small.1
            ),
            large.1 < 6.0 && large.0 < 400.0,
            "",
        ),
        Finding::new(
            "Fig. 7c",
            "gang: neither buffer nor a larger cache helps from about 15 keys on",
            format!("from 5 to 15 keys {:.1} % of latency, from 15 to 40 {:.1} %", 100.0 * first, 100.0 * flat),
            flat.abs() < 0.05,
            "one job at a time needs the keys of its own peers only",
        ),
        Finding::new(
            "Fig. 7d",
            "gang: larger buffers make little difference",
            format!("a buffer of 8 with 20 keys: {:.1} % of latency", 100.0 * by_buffer),
            by_buffer.abs() < 0.03,
            "",
        ),
    ];
    Ok(Outcome { findings, figures: drawn, ..Outcome::default() })
}
