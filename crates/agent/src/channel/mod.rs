//! The connections of a bridge with its controllers.
