//! One suite of op tests that every backend must pass.
