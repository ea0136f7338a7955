#![no_main]

plimsoll_fuzz::target!(dicom_archive);
