//! What OpenFlow messages do to a bridge, and what a bridge tells its controllers.
