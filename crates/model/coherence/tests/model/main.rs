//! Tests of the simulator on traces whose right counts are known by hand or from a slow model. One
//! binary, so that it is linked once.

mod classification;
mod machines;
mod reference;
mod slow;
