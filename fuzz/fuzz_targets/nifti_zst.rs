#![no_main]

plimsoll_fuzz::target!(nifti_zst);
