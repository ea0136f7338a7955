#![no_main]

plimsoll_fuzz::target!(tiff);
