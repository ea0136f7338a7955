#![no_main]

plimsoll_fuzz::target!(monai_bundle);
