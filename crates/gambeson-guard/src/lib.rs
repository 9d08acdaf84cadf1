//! Stops a rank whose MPI library came up without the Gambeson provider.
