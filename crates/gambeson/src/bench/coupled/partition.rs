//! One process of the coupled model: a slab of the ocean or of the atmosphere.

use std::time::Instant;

use aws_lc_rs::digest::{SHA256, digest};
use gambeson_link::Policy;
use serde::{Deserialize, Serialize};

use super::atmosphere::Atmosphere;
use super::exchange::{Exchange, Peers};
use super::grid::{DAY, INTERVAL, Slab};
use super::ocean::Ocean;
use crate::bench::part::{self, Job};
use crate::failure::Failure;

/// Cells of the ocean, eastward as northward, that share a cell of the atmosphere.
pub(super) const FINER: usize = 2;

/// What a process is told first.
#[derive(Deserialize, Serialize)]
pub(super) struct Setting {
    pub(super) job: Job,
    pub(super) component: Component,
    /// Which of the component's processes this is, from south to north, and how many there are.
    pub(super) index: usize,
    pub(super) processes: usize,
    /// Cells of the ocean, eastward and northward.
    pub(super) cells: usize,
    pub(super) days: u32,
    /// Whether links within the component go over shared memory; else over TCP.
    pub(super) shm: bool,
    /// What its links follow: a `gambeson.toml`.
    pub(super) policy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Component {
    Ocean,
    Atmosphere,
}

impl Component {
    /// What policies know the computer by that it runs on.
    fn host(self) -> &'static str {
        match self {
            Component::Ocean => "ocean",
            Component::Atmosphere => "atmosphere",
        }
    }
}

/// What it says at the end.
#[derive(Deserialize, Serialize)]
pub(super) struct Outcome {
    /// From the word to begin until its last day was over.
    pub(super) seconds: f64,
    /// Whether its links to neighbours and to its partner are sealed, where it has such.
    pub(super) sealed: (Option<bool>, Option<bool>),
    /// From south to north.
    pub(super) rows: Vec<Row>,
}

/// A row of cells: SHA-256 of all its values, and its heat, in J.
#[derive(Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) digest: Vec<u8>,
    pub(super) before: f64,
    pub(super) after: f64,
    /// That went from the atmosphere into the ocean.
    pub(super) exchanged: f64,
    /// What came from the sun, less what went to space.
    pub(super) radiated: f64,
}

/// Is such a process.
pub(crate) fn run() -> Result<(), Failure> {
    let setting: Setting = part::hear()?;
    let Setting { job, component, shm, policy, processes, .. } = &setting;
    let policy = Policy::parse(policy, "the setting").map_err(|error| Failure::system(error.to_string()))?;
    let (mut exchange, offer) = Exchange::open(job, *shm, (component.host(), &policy), 2 * processes)?;
    part::tell(&offer)?;
    let peers: Peers = part::hear()?;
    exchange.connect(&peers)?;
    let outcome = match setting.component {
        Component::Ocean => ocean(&setting, &exchange)?,
        Component::Atmosphere => atmosphere(&setting, &exchange)?,
    };
    exchange.finish(&outcome)
}

/// How often the components exchange in all.
fn intervals(setting: &Setting) -> u32 {
    (f64::from(setting.days) * DAY / INTERVAL) as u32
}

fn ocean(setting: &Setting, exchange: &Exchange) -> Result<Outcome, Failure> {
    let slab = Slab::new(setting.cells, setting.processes, setting.index);
    let mut ocean = Ocean::new(slab);
    let rows = 1..=slab.rows;
    let before: Vec<f64> = rows.clone().map(|row| ocean.heat_content(row)).collect();
    let mut received = vec![0.0; slab.rows];
    let (columns, shared) = (slab.columns / FINER, (FINER * FINER) as f64);
    let began = Instant::now();
    for _ in 0..intervals(setting) {
        let mut surface = Vec::with_capacity(columns * slab.rows / FINER);
        for row in (1..=slab.rows).step_by(FINER) {
            for column in (1..=slab.columns).step_by(FINER) {
                let cells = (0..FINER * FINER).map(|cell| ocean.surface(row + cell / FINER, column + cell % FINER));
                surface.push(cells.sum::<f64>() / shared);
            }
        }
        exchange.give(&[&surface])?;
        let fluxes = exchange.take()?;
        let (heat, stress) = fluxes.split_at(fluxes.len() / 2);
        for row in 1..=slab.rows {
            let above = (row - 1) / FINER * columns;
            for column in 1..=slab.columns {
                let cell = above + (column - 1) / FINER;
                ocean.heating.row_mut(row)[column] = heat[cell];
                ocean.stress.row_mut(row)[column] = stress[cell];
            }
            received[row - 1] += ocean.heat_received(row);
        }
        ocean.advance(|ocean| {
            let edges = exchange.halo(|northern| ocean.edge(northern))?;
            for (northern, edge) in [false, true].into_iter().zip(edges) {
                if let Some(edge) = edge {
                    ocean.take_edge(northern, &edge);
                }
            }
            Ok::<_, Failure>(())
        })?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let rows = rows.map(|row| Row {
        digest: hash(&ocean.row_values(row)),
        before: before[row - 1],
        after: ocean.heat_content(row),
        exchanged: received[row - 1],
        radiated: 0.0,
    });
    Ok(Outcome { seconds, sealed: exchange.sealed(), rows: rows.collect() })
}

fn atmosphere(setting: &Setting, exchange: &Exchange) -> Result<Outcome, Failure> {
    let slab = Slab::new(setting.cells / FINER, setting.processes, setting.index);
    let mut atmosphere = Atmosphere::new(slab);
    let halo = |atmosphere: &mut Atmosphere| {
        let edges = exchange.halo(|northern| atmosphere.edge(northern))?;
        for (northern, edge) in [false, true].into_iter().zip(edges) {
            if let Some(edge) = edge {
                atmosphere.take_edge(northern, &edge);
            }
        }
        Ok::<_, Failure>(())
    };
    let rows = 1..=slab.rows;
    let before: Vec<f64> = rows.clone().map(|row| atmosphere.heat_content(row)).collect();
    let mut given = vec![0.0; slab.rows];
    let began = Instant::now();
    for _ in 0..intervals(setting) {
        // The wind goes by the gradient of temperature, also at the slab's edges.
        halo(&mut atmosphere)?;
        atmosphere.close();
        let surface = exchange.take()?;
        let (heat, stress) = atmosphere.exchange(&surface);
        exchange.give(&[&heat, &stress])?;
        for row in rows.clone() {
            given[row - 1] += atmosphere.heat_given(row);
        }
        atmosphere.advance(halo)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let rows = rows.map(|row| Row {
        digest: hash(&atmosphere.row_values(row)),
        before: before[row - 1],
        after: atmosphere.heat_content(row),
        exchanged: given[row - 1],
        radiated: atmosphere.radiated[row - 1],
    });
    Ok(Outcome { seconds, sealed: exchange.sealed(), rows: rows.collect() })
}

fn hash(values: &[f64]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    digest(&SHA256, &bytes).as_ref().to_vec()
}
