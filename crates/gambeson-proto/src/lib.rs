//! Sans-IO core of Gambeson: bytes, time and randomness come in from outside.
