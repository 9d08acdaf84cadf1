//! The atmosphere: an energy-balance model in two dimensions (North, Cahalan and Coakley, *Reviews of Geophysics* 19, 1981,
//! 91-121): the sun warms, radiation cools, mixing evens out, and the sea below gives or takes the rest.
//!
//! ```text
//!   C dT/dt = (1 - a) S - (A + B T) + D r^2 lap(T) - H
//!   H = t (1 - a) S - L (SST - T)
//! ```
//!
//! S is the yearly mean of the insolation at its latitude, a the albedo, which rises where it is cold (ice), and H goes into
//! the ocean: what sunlight reaches it, less what it gives back (a bulk formula: Gill, *Atmosphere-Ocean Dynamics*, sections
//! 2.4 and 2.5, all kinds together as Haney, *J. Phys. Oceanogr.* 1, 1971, 241-248, has it). H is set at each exchange and
//! holds until the next, so that what the atmosphere gives and what the ocean gets are the same sum.

use super::grid::{EXTENT, Field, INTERVAL, LATITUDE, RADIUS, Slab};
use super::ocean::initial_temperature;

/// The sun's radiation on a plane across it, by four: the mean over the sphere, W/m2.
const INSOLATION: f64 = 340.0;
/// How it goes down towards the pole: the second Legendre coefficient of the yearly mean.
const INSOLATION_SLOPE: f64 = -0.482;
/// Of what it radiates to space, W/m2, at 0 degC, and what that rises by a degree.
const RADIATION: f64 = 203.3;
const RADIATION_SLOPE: f64 = 2.09;
/// Albedo without and with ice, and the temperatures between which it goes from one to the other, degC.
const ALBEDO: f64 = 0.32;
const ALBEDO_OF_ICE: f64 = 0.62;
const FREEZING: (f64, f64) = (-10.0, -2.0);
/// Heat capacity of a column of air: its mass, 1e5 Pa / 9.81 m/s2, times 1004 J/(kg K), J/(m2 K).
const HEAT_CAPACITY: f64 = 1.02e7;
/// Mixing, W/(m2 K) on the unit sphere.
const MIXING: f64 = 0.649;
/// How much of the absorbed sunlight the sea absorbs.
const TRANSMITTED: f64 = 0.5;
/// Heat that goes from sea to air for a degree between them, W/(m2 K).
const EXCHANGE: f64 = 40.0;
/// The wind's stress in the middle of the westerlies, N/m2, where the air is so much colder further north, K/m. The model has no
/// winds: where they blow is prescribed, and how strongly goes by the gradient of temperature that drives them.
const STRESS: f64 = 0.05;
const GRADIENT: f64 = -4.0e-6;
/// A step covers at most this of what mixing allows.
const MIXED_MAX: f64 = 0.8;

/// A slab of it.
pub(super) struct Atmosphere {
    pub(super) slab: Slab,
    /// Temperature near the ground, degC.
    temperature: Field,
    rate: Field,
    /// Heat that goes into the ocean, W/m2, until the next exchange.
    given: Field,
    /// What came from the sun less what went to space since the beginning, J for each row.
    pub(super) radiated: Vec<f64>,
}

impl Atmosphere {
    /// A little colder than the sea.
    pub(super) fn new(slab: Slab) -> Self {
        let field = || Field::new(slab.columns, slab.rows);
        let mut temperature = field();
        for row in 1..=slab.rows {
            temperature.row_mut(row).fill(initial_temperature(slab.northward(row as f64 - 0.5)) - 3.0);
        }
        Atmosphere { slab, temperature, rate: field(), given: field(), radiated: vec![0.0; slab.rows] }
    }

    /// What the sea gets at each of its temperatures here: heat, W/m2, and the wind's stress, N/m2, cell by cell.
    pub(super) fn exchange(&mut self, surface: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let Slab { columns, rows, .. } = self.slab;
        let dx = self.slab.spacing();
        let (mut heat, mut stress) = (Vec::with_capacity(surface.len()), Vec::with_capacity(surface.len()));
        for row in 1..=rows {
            let northward = self.slab.northward(row as f64 - 0.5);
            let sunlight = insolation(northward);
            let westerlies = -STRESS * (std::f64::consts::PI * northward / EXTENT + std::f64::consts::FRAC_PI_2).cos();
            for column in 1..=columns {
                let air = self.temperature.row(row)[column];
                let sea = surface[(row - 1) * columns + column - 1];
                let given = TRANSMITTED * (1.0 - albedo(air)) * sunlight - EXCHANGE * (sea - air);
                self.given.row_mut(row)[column] = given;
                heat.push(given);
                let (north, south) = (self.temperature.row(row + 1)[column], self.temperature.row(row - 1)[column]);
                stress.push(westerlies * (north - south) / (2.0 * dx) / GRADIENT);
            }
        }
        (heat, stress)
    }

    /// Goes on until the next exchange; `halo` brings what the neighbours' rows next to this slab are.
    pub(super) fn advance<E>(&mut self, mut halo: impl FnMut(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let steps = steps(&self.slab);
        let dt = INTERVAL / f64::from(steps);
        for _ in 0..steps {
            halo(self)?;
            self.close();
            self.tendencies(dt);
            let old = self.temperature.clone();
            self.temperature.blend(0.0, &old, &self.rate, dt, 1.0);
        }
        Ok(())
    }

    fn tendencies(&mut self, dt: f64) {
        let Slab { columns, rows, .. } = self.slab;
        let dx = self.slab.spacing();
        let mixing = MIXING * RADIUS * RADIUS / (dx * dx);
        for row in 1..=rows {
            let sunlight = insolation(self.slab.northward(row as f64 - 0.5));
            let (own, north, south) =
                (self.temperature.row(row), self.temperature.row(row + 1), self.temperature.row(row - 1));
            let (given, rate) = (self.given.row(row), self.rate.row_mut(row));
            let mut radiated = 0.0;
            for i in 1..=columns {
                let kept = (1.0 - albedo(own[i])) * sunlight - (RADIATION + RADIATION_SLOPE * own[i]);
                // As fluxes through faces, each the same from both sides.
                let mixed = (own[i + 1] - own[i]) - (own[i] - own[i - 1]) + (north[i] - own[i]) - (own[i] - south[i]);
                rate[i] = (kept - given[i] + mixing * mixed) / HEAT_CAPACITY;
                radiated += kept;
            }
            self.radiated[row - 1] += radiated * dt * dx * dx;
        }
    }

    /// Walls: nothing mixes through them.
    pub(super) fn close(&mut self) {
        let rows = self.slab.rows;
        if self.slab.at_southern_wall() {
            self.temperature.copy_row(1, 0);
        }
        if self.slab.at_northern_wall() {
            self.temperature.copy_row(rows, rows + 1);
        }
        self.temperature.close_west_and_east();
    }

    /// The row at the southern or northern edge of this slab, for the neighbour there.
    pub(super) fn edge(&self, northern: bool) -> Vec<f64> {
        self.row_values(if northern { self.slab.rows } else { 1 })
    }

    /// The neighbour's.
    pub(super) fn take_edge(&mut self, northern: bool, values: &[f64]) {
        let Slab { columns, rows, .. } = self.slab;
        let row = if northern { rows + 1 } else { 0 };
        self.temperature.row_mut(row)[1..=columns].copy_from_slice(values);
    }

    /// Heat in a row of cells, J above that of air at 0 degC.
    pub(super) fn heat_content(&self, row: usize) -> f64 {
        let area = self.slab.spacing() * self.slab.spacing();
        HEAT_CAPACITY * area * self.temperature.inside(row).iter().sum::<f64>()
    }

    /// Heat that a row gives between two exchanges, J.
    pub(super) fn heat_given(&self, row: usize) -> f64 {
        let area = self.slab.spacing() * self.slab.spacing();
        INTERVAL * area * self.given.inside(row).iter().sum::<f64>()
    }

    /// All that the atmosphere is in a row, for a digest.
    pub(super) fn row_values(&self, row: usize) -> Vec<f64> {
        self.temperature.inside(row).to_vec()
    }
}

/// The yearly mean of the sun's radiation so far north of the plane's middle, W/m2.
fn insolation(northward: f64) -> f64 {
    let sine = (LATITUDE.to_radians() + northward / RADIUS).sin();
    INSOLATION * (1.0 + INSOLATION_SLOPE * 0.5 * (3.0 * sine * sine - 1.0))
}

fn albedo(temperature: f64) -> f64 {
    let (frozen, open) = FREEZING;
    let ice = ((open - temperature) / (open - frozen)).clamp(0.0, 1.0);
    ALBEDO + (ALBEDO_OF_ICE - ALBEDO) * ice
}

/// Steps between two exchanges: what explicit mixing in two dimensions allows.
fn steps(slab: &Slab) -> u32 {
    let diffusivity = MIXING * RADIUS * RADIUS / HEAT_CAPACITY;
    let longest = slab.spacing() * slab.spacing() / (4.0 * diffusivity);
    (INTERVAL / (MIXED_MAX * longest)).ceil() as u32
}
