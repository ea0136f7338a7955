#![no_main]

plimsoll_fuzz::target!(npz_image);
