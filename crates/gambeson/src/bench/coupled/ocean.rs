//! The ocean: one layer of warm water that moves over a deep one at rest, driven by wind, with its temperature carried
//! along (shallow water with reduced gravity: Vallis, *Atmospheric and Oceanic Fluid Dynamics*, 2nd ed., sections 3.1 and
//! 3.2; wind-driven gyres: chapter 19), in a basin with four walls on a beta plane.
//!
//! ```text
//!   du/dt = + q [hv]  - d/dx (g' h + K) + A lap(u) + tau / (rho h)      q = (f + dv/dx - du/dy) / h
//!   dv/dt = - q [hu]  - d/dy (g' h + K) + A lap(v)                      K = (u^2 + v^2) / 2
//!   dh/dt = - div(h u)
//!   d(hT)/dt = - div(h u T) + div(k h grad T) + H / (rho c)
//! ```
//!
//! C grid (Arakawa and Lamb 1977): h and hT at cells, u at their eastern, v at their northern faces. Momentum is in the
//! form that keeps energy (Sadourny, *J. Atmos. Sci.* 32, 1975, 680-689), h and hT are in flux form, so that heat changes by
//! H alone, to rounding. Three stages a step (Shu and Osher, *J. Comput. Phys.* 77, 1988, 439-471).

use super::grid::{EXTENT, Field, INTERVAL, LATITUDE, RADIUS, Slab};

/// Density of sea water, kg/m3.
const DENSITY: f64 = 1025.0;
/// Its heat capacity, J/(kg K).
const HEAT_CAPACITY: f64 = 3990.0;
/// Gravity, less what the deep water's buoyancy takes of it, m/s2.
const REDUCED_GRAVITY: f64 = 0.02;
/// The layer's mean depth, m.
const DEPTH: f64 = 400.0;
/// Eddy viscosity, m2/s: (A / beta)^(1/3) = 65 km is the width of the western boundary current (Munk).
const VISCOSITY: f64 = 5000.0;
/// Eddy diffusivity of heat, m2/s.
const DIFFUSIVITY: f64 = 1000.0;
/// The earth's rotation, rad/s.
const ROTATION: f64 = 7.292e-5;
/// A step covers at most so many radians of the fastest wave; three-stage Runge-Kutta is stable to 1.73.
const RADIANS_MAX: f64 = 1.2;

/// Rows that a neighbour needs: of h, u, v and hT.
pub(super) const HALO_FIELDS: usize = 4;

#[derive(Clone)]
struct State {
    /// Thickness, m.
    h: Field,
    /// Velocity eastward and northward, m/s.
    u: Field,
    v: Field,
    /// Thickness times temperature, m degC.
    heat: Field,
}

impl State {
    fn new(slab: &Slab) -> Self {
        let field = || Field::new(slab.columns, slab.rows);
        State { h: field(), u: field(), v: field(), heat: field() }
    }

    fn fields(&mut self) -> [&mut Field; HALO_FIELDS] {
        [&mut self.h, &mut self.u, &mut self.v, &mut self.heat]
    }

    fn blend(&mut self, own: f64, first: &State, rate: &State, dt: f64, others: f64) {
        self.h.blend(own, &first.h, &rate.h, dt, others);
        self.u.blend(own, &first.u, &rate.u, dt, others);
        self.v.blend(own, &first.v, &rate.v, dt, others);
        self.heat.blend(own, &first.heat, &rate.heat, dt, others);
    }
}

/// A slab of it.
pub(super) struct Ocean {
    pub(super) slab: Slab,
    state: State,
    rate: State,
    /// Memory for fluxes through faces, vorticity by thickness at corners, and kinetic energy and temperature at cells.
    eastward: Field,
    northward: Field,
    vorticity: Field,
    kinetic: Field,
    temperature: Field,
    /// Heat that comes from above, W/m2, and the wind's eastward stress, N/m2, at cells, until the next exchange.
    pub(super) heating: Field,
    pub(super) stress: Field,
}

impl Ocean {
    /// At rest, warm in the south.
    pub(super) fn new(slab: Slab) -> Self {
        let field = || Field::new(slab.columns, slab.rows);
        let mut state = State::new(&slab);
        for row in 1..=slab.rows {
            let temperature = initial_temperature(slab.northward(row as f64 - 0.5));
            state.h.row_mut(row).fill(DEPTH);
            state.heat.row_mut(row).fill(DEPTH * temperature);
        }
        let rate = State::new(&slab);
        let (eastward, northward, vorticity, kinetic) = (field(), field(), field(), field());
        let (temperature, heating, stress) = (field(), field(), field());
        Ocean { slab, state, rate, eastward, northward, vorticity, kinetic, temperature, heating, stress }
    }

    /// Goes on until the next exchange; `halo` brings what the neighbours' rows next to this slab are.
    pub(super) fn advance<E>(&mut self, mut halo: impl FnMut(&mut Self) -> Result<(), E>) -> Result<(), E> {
        self.heating.close_west_and_east();
        self.stress.close_west_and_east();
        let steps = steps(&self.slab);
        let dt = INTERVAL / f64::from(steps);
        for _ in 0..steps {
            let start = self.state.clone();
            // How much of the step's beginning is in each stage, and of what the stage before led to.
            for (of_start, of_stage) in [(0.0, 1.0), (3.0 / 4.0, 1.0 / 4.0), (1.0 / 3.0, 2.0 / 3.0)] {
                halo(self)?;
                self.close();
                self.tendencies();
                let stage = std::mem::replace(&mut self.state, start.clone());
                self.state.blend(of_start, &stage, &self.rate, dt, of_stage);
            }
        }
        Ok(())
    }

    /// The row at the southern or northern edge of this slab, for the neighbour there.
    pub(super) fn edge(&mut self, northern: bool) -> Vec<f64> {
        let row = if northern { self.slab.rows } else { 1 };
        self.state.fields().iter().flat_map(|field| field.inside(row).to_vec()).collect()
    }

    /// The neighbour's.
    pub(super) fn take_edge(&mut self, northern: bool, values: &[f64]) {
        let Slab { columns, rows, .. } = self.slab;
        let row = if northern { rows + 1 } else { 0 };
        for (field, values) in self.state.fields().into_iter().zip(values.chunks_exact(columns)) {
            field.row_mut(row)[1..=columns].copy_from_slice(values);
        }
    }

    /// Temperature of the surface at cell (row, column), degC.
    pub(super) fn surface(&self, row: usize, column: usize) -> f64 {
        self.state.heat.row(row)[column] / self.state.h.row(row)[column]
    }

    /// Heat in a row of cells, J above that of water at 0 degC.
    pub(super) fn heat_content(&self, row: usize) -> f64 {
        let area = self.slab.spacing() * self.slab.spacing();
        DENSITY * HEAT_CAPACITY * area * self.state.heat.inside(row).iter().sum::<f64>()
    }

    /// Heat that a row gets between two exchanges, J.
    pub(super) fn heat_received(&self, row: usize) -> f64 {
        let area = self.slab.spacing() * self.slab.spacing();
        INTERVAL * area * self.heating.inside(row).iter().sum::<f64>()
    }

    /// All that the ocean is in a row, for a digest.
    pub(super) fn row_values(&mut self, row: usize) -> Vec<f64> {
        self.state.fields().iter().flat_map(|field| field.inside(row).to_vec()).collect()
    }

    /// Walls: nothing goes through them, no heat flows down a gradient there, and water slips along them.
    fn close(&mut self) {
        let Slab { columns, rows, .. } = self.slab;
        let State { h, u, v, heat } = &mut self.state;
        for field in [&mut *h, &mut *u, &mut *heat] {
            if self.slab.at_southern_wall() {
                field.copy_row(1, 0);
            }
            if self.slab.at_northern_wall() {
                field.copy_row(rows, rows + 1);
            }
        }
        if self.slab.at_southern_wall() {
            v.row_mut(0).fill(0.0);
        }
        if self.slab.at_northern_wall() {
            v.row_mut(rows).fill(0.0);
            v.row_mut(rows + 1).fill(0.0);
        }
        for field in [h, v, heat] {
            field.close_west_and_east();
        }
        for row in 0..rows + 2 {
            let u = u.row_mut(row);
            (u[0], u[columns], u[columns + 1]) = (0.0, 0.0, 0.0);
        }
    }

    /// How fast everything changes.
    fn tendencies(&mut self) {
        self.diagnose();
        let Slab { columns, rows, .. } = self.slab;
        let dx = self.slab.spacing();
        for row in 1..=rows {
            self.momentum(row, dx);
            self.continuity(row, dx);
        }
        // The walls' own faces stay at rest.
        for row in 1..=rows {
            let u = self.rate.u.row_mut(row);
            (u[0], u[columns]) = (0.0, 0.0);
        }
        if self.slab.at_northern_wall() {
            self.rate.v.row_mut(rows).fill(0.0);
        }
    }

    /// Fluxes, vorticity, kinetic energy and temperature, of what is there.
    fn diagnose(&mut self) {
        let Slab { columns, rows, .. } = self.slab;
        let State { h, u, v, heat } = &self.state;
        let dx = self.slab.spacing();
        for row in 0..=rows + 1 {
            let (h, u, heat) = (h.row(row), u.row(row), heat.row(row));
            let (eastward, temperature) = (self.eastward.row_mut(row), self.temperature.row_mut(row));
            for i in 0..=columns {
                eastward[i] = u[i] * 0.5 * (h[i] + h[i + 1]);
            }
            for i in 0..=columns + 1 {
                temperature[i] = heat[i] / h[i];
            }
        }
        for row in 0..=rows {
            let coriolis = coriolis(self.slab.northward(row as f64));
            let (h, h_north) = (h.row(row), h.row(row + 1));
            let (u, u_north, v) = (u.row(row), u.row(row + 1), v.row(row));
            let (northward, vorticity) = (self.northward.row_mut(row), self.vorticity.row_mut(row));
            for i in 0..=columns + 1 {
                northward[i] = v[i] * 0.5 * (h[i] + h_north[i]);
            }
            for i in 0..=columns {
                let relative = (v[i + 1] - v[i] - u_north[i] + u[i]) / dx;
                vorticity[i] = (coriolis + relative) / (0.25 * (h[i] + h[i + 1] + h_north[i] + h_north[i + 1]));
            }
        }
        for row in 1..=rows + 1 {
            let (u, v, v_south) = (u.row(row), v.row(row), v.row(row - 1));
            let kinetic = self.kinetic.row_mut(row);
            for i in 1..=columns {
                kinetic[i] = 0.25 * (u[i] * u[i] + u[i - 1] * u[i - 1] + v[i] * v[i] + v_south[i] * v_south[i]);
            }
        }
    }

    fn momentum(&mut self, row: usize, dx: f64) {
        let columns = self.slab.columns;
        let State { h, u, v, .. } = &self.state;
        let (h_north, h) = (h.row(row + 1), h.row(row));
        let (q, q_south) = (self.vorticity.row(row), self.vorticity.row(row - 1));
        let (north, south) = (self.northward.row(row), self.northward.row(row - 1));
        let (east, east_north) = (self.eastward.row(row), self.eastward.row(row + 1));
        let (k, k_north) = (self.kinetic.row(row), self.kinetic.row(row + 1));
        let stress = self.stress.row(row);
        let laplacian = |field: &Field, i: usize| {
            let (own, above, below) = (field.row(row), field.row(row + 1), field.row(row - 1));
            (own[i + 1] + own[i - 1] + above[i] + below[i] - 4.0 * own[i]) / (dx * dx)
        };
        let rate = self.rate.u.row_mut(row);
        for i in 1..columns {
            let turned = 0.25 * (q[i] * (north[i] + north[i + 1]) + q_south[i] * (south[i] + south[i + 1]));
            let slope = (REDUCED_GRAVITY * (h[i + 1] - h[i]) + k[i + 1] - k[i]) / dx;
            let wind = (stress[i] + stress[i + 1]) / (DENSITY * (h[i] + h[i + 1]));
            rate[i] = turned - slope + wind + VISCOSITY * laplacian(u, i);
        }
        let rate = self.rate.v.row_mut(row);
        for i in 1..=columns {
            let turned = 0.25 * (q[i] * (east[i] + east_north[i]) + q[i - 1] * (east[i - 1] + east_north[i - 1]));
            let slope = (REDUCED_GRAVITY * (h_north[i] - h[i]) + k_north[i] - k[i]) / dx;
            rate[i] = VISCOSITY * laplacian(v, i) - turned - slope;
        }
    }

    fn continuity(&mut self, row: usize, dx: f64) {
        let State { h, .. } = &self.state;
        let (h_south, h, h_north) = (h.row(row - 1), h.row(row), h.row(row + 1));
        let (east, north, south) = (self.eastward.row(row), self.northward.row(row), self.northward.row(row - 1));
        let (t_south, t, t_north) =
            (self.temperature.row(row - 1), self.temperature.row(row), self.temperature.row(row + 1));
        let heating = self.heating.row(row);
        // Through a face, from the first side to the second: what flows, and what heat flows down the gradient.
        let through = |flow: f64, (t0, t1): (f64, f64), (h0, h1): (f64, f64)| {
            flow * 0.5 * (t0 + t1) - DIFFUSIVITY * 0.5 * (h0 + h1) * (t1 - t0) / dx
        };
        for i in 1..=self.slab.columns {
            self.rate.h.row_mut(row)[i] = -(east[i] - east[i - 1] + north[i] - south[i]) / dx;
            let eastern = through(east[i], (t[i], t[i + 1]), (h[i], h[i + 1]));
            let western = through(east[i - 1], (t[i - 1], t[i]), (h[i - 1], h[i]));
            let northern = through(north[i], (t[i], t_north[i]), (h[i], h_north[i]));
            let southern = through(south[i], (t_south[i], t[i]), (h_south[i], h[i]));
            self.rate.heat.row_mut(row)[i] =
                heating[i] / (DENSITY * HEAT_CAPACITY) - (eastern - western + northern - southern) / dx;
        }
    }
}

/// Temperature to begin with, degC, so far north of the plane's middle: 24 at the southern wall, 4 at the northern.
pub(super) fn initial_temperature(northward: f64) -> f64 {
    14.0 - 20.0 * northward / EXTENT
}

/// The Coriolis parameter on the beta plane, 1/s.
fn coriolis(northward: f64) -> f64 {
    let latitude = LATITUDE.to_radians();
    2.0 * ROTATION * (latitude.sin() + latitude.cos() * northward / RADIUS)
}

/// Steps between two exchanges: inertia-gravity waves of two cells' length are the fastest motion.
fn steps(slab: &Slab) -> u32 {
    let gravity = 8.0 * REDUCED_GRAVITY * DEPTH / (slab.spacing() * slab.spacing());
    let rotation = coriolis(EXTENT / 2.0);
    (INTERVAL * (gravity + rotation * rotation).sqrt() / RADIANS_MAX).ceil() as u32
}
