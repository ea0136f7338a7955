//! The meaning of segments in codes of SNOMED CT, by the names that TotalSegmentator has for them.
//!
//! Categories come from DICOM's own list (PS3.16, CID 7150). `oracles/dicom_seg.py` looks each code up in DICOM's dictionary of concepts, and
//! counts those that are of SNOMED CT alone.

use super::elements::Code;

const ANATOMICAL: Code = Code::sct("91723000", "Anatomical Structure");
const ABNORMAL: Code = Code::sct("49755003", "Morphologically Abnormal Structure");

/// The type of a segment of which only the label is known.
const TISSUE: Code = Code::sct("85756007", "Tissue");

/// The parts of names, at the end or in the middle, of structures that exist on both sides.
const SIDES: [(&str, Code); 2] =
    [("_left", Code::sct("7771000", "Left")), ("_right", Code::sct("24028007", "Right"))];

/// The meaning of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Concept {
    pub(super) category: Code,
    pub(super) property: Code,
    /// The side, if the code does not include it.
    pub(super) side: Option<Code>,
}

/// The meaning of a segment by its name.
pub(super) fn concept(name: &str) -> Concept {
    let found = |name: &str, side| {
        let anatomical = ANATOMY.iter().map(|entry| (ANATOMICAL, entry));
        let mut all = anatomical.chain(ALTERED.iter().map(|entry| (ABNORMAL, entry)));
        let (category, (_, value, meaning)) = all.find(|(_, (known, _, _))| *known == name)?;
        Some(Concept { category, property: Code::sct(value, meaning), side })
    };
    // `heart_atrium_left` has a code of its own; of `rib_left_1` the rib has.
    let of_side = || {
        let (part, side) = SIDES.into_iter().find(|(part, _)| name.contains(part))?;
        found(&name.replacen(part, "", 1), Some(side))
    };
    found(name, None).or_else(of_side).unwrap_or(Concept { category: TISSUE, property: TISSUE, side: None })
}

/// Structures of a body: name, code, meaning.
const ANATOMY: [(&str, &str, &str); 125] = [
    ("abdominal_cavity", "52731004", "Abdominal cavity"),
    ("adrenal_gland", "23451007", "Adrenal gland"),
    ("aorta", "15825003", "Aorta"),
    ("atrial_appendage_left", "33626005", "Left auricular appendage"),
    ("autochthon", "244849004", "Deep muscle of back"),
    ("brachiocephalic_trunk", "12691009", "Brachiocephalic artery"),
    ("brachiocephalic_vein", "8887007", "Brachiocephalic vein"),
    ("brain", "12738006", "Brain"),
    ("carpal", "83936004", "Carpus"),
    ("clavicula", "51299004", "Clavicle"),
    ("colon", "71854001", "Colon"),
    ("common_carotid_artery", "32062004", "Common carotid artery"),
    ("coronary_arteries", "41801008", "Coronary artery"),
    ("costal_cartilages", "50016007", "Costal cartilage"),
    ("duodenum", "38848004", "Duodenum"),
    ("esophagus", "32849002", "Esophagus"),
    ("face", "89545001", "Face"),
    ("femur", "71341001", "Femur"),
    ("fibula", "87342007", "Fibula"),
    ("fourth_ventricle", "35918002", "Fourth ventricle"),
    ("gallbladder", "28231008", "Gallbladder"),
    ("gluteus_maximus", "181674001", "Gluteus maximus muscle"),
    ("gluteus_medius", "78333006", "Gluteus medius muscle"),
    ("gluteus_minimus", "75297007", "Gluteus minimus muscle"),
    ("head", "69536005", "Head"),
    ("heart", "80891009", "Heart"),
    ("heart_atrium_left", "82471001", "Left atrium"),
    ("heart_atrium_right", "73829009", "Right atrium"),
    ("heart_myocardium", "74281007", "Myocardium"),
    ("heart_ventricle_left", "87878005", "Left ventricle of heart"),
    ("heart_ventricle_right", "53085002", "Right ventricle of heart"),
    ("hip", "29836001", "Hip"),
    ("humerus", "85050009", "Humerus"),
    ("hyoid", "21387005", "Hyoid bone"),
    ("hypopharynx", "81502006", "Hypopharynx"),
    ("iliac_artery", "73634005", "Common iliac artery"),
    ("iliac_vena", "46027005", "Common iliac vein"),
    ("iliopsoas", "68455001", "Iliopsoas muscle"),
    ("inferior_vena_cava", "64131007", "Inferior vena cava"),
    ("internal_carotid_artery", "86117002", "Internal carotid artery"),
    ("internal_jugular_vein", "12123001", "Internal jugular vein"),
    ("kidney", "64033007", "Kidney"),
    ("liver", "10200004", "Liver"),
    ("lung", "39607008", "Lung"),
    ("lung_lower_lobe", "90572001", "Lower lobe of lung"),
    ("lung_middle_lobe_right", "72481006", "Middle lobe of right lung"),
    ("lung_upper_lobe", "45653009", "Upper lobe of lung"),
    ("mandible", "91609006", "Mandible"),
    ("mediastinum", "72410000", "Mediastinum"),
    ("metacarpal", "36455000", "Metacarpal bones"),
    ("metatarsal", "53884002", "Metatarsal"),
    ("nasal_cavity", "279549004", "Nasal cavity"),
    ("nasopharynx", "71836000", "Nasopharynx"),
    ("optic_nerve", "18234004", "Optic nerve"),
    ("oropharynx", "31389004", "Oropharynx"),
    ("pancreas", "15776009", "Pancreas"),
    ("parotid_gland", "45289007", "Parotid gland"),
    ("patella", "64234005", "Patella"),
    ("pericardium", "76848001", "Pericardium"),
    ("portal_vein_and_splenic_vein", "110765007", "Portal vein and splenic vein"),
    ("prostate", "41216001", "Prostate"),
    ("pulmonary_artery", "81040000", "Pulmonary artery"),
    ("pulmonary_vein", "122972007", "Pulmonary vein"),
    ("radius", "62413002", "Radius"),
    ("rib_1", "48535007", "First rib"),
    ("rib_10", "77644006", "Tenth rib"),
    ("rib_11", "58830002", "Eleventh rib"),
    ("rib_12", "43993008", "Twelfth rib"),
    ("rib_2", "78247007", "Second rib"),
    ("rib_3", "25888004", "Third rib"),
    ("rib_4", "25523003", "Fourth rib"),
    ("rib_5", "15339008", "Fifth rib"),
    ("rib_6", "59558009", "Sixth rib"),
    ("rib_7", "24915002", "Seventh rib"),
    ("rib_8", "5953002", "Eighth rib"),
    ("rib_9", "22565002", "Ninth rib"),
    ("sacrum", "54735007", "Sacrum"),
    ("scapula", "79601000", "Scapula"),
    ("sinus_frontal", "55060009", "Frontal sinus"),
    ("sinus_maxillary", "15924003", "Maxillary sinus"),
    ("skeletal_muscle", "127954009", "Skeletal muscle"),
    ("skull", "89546000", "Skull"),
    ("small_bowel", "30315005", "Small intestine"),
    ("soft_palate", "49460000", "Soft palate"),
    ("spinal_cord", "2748008", "Spinal cord"),
    ("spleen", "78961009", "Spleen"),
    ("sternocleidomastoid", "22823000", "Sternocleidomastoid muscle"),
    ("sternum", "56873002", "Sternum"),
    ("stomach", "69695003", "Stomach"),
    ("subclavian_artery", "36765005", "Subclavian artery"),
    ("superior_vena_cava", "48345005", "Superior vena cava"),
    ("third_ventricle", "49841001", "Third ventricle"),
    ("thoracic_cavity", "43799004", "Thoracic cavity"),
    ("thyroid_gland", "69748006", "Thyroid gland"),
    ("tibia", "12611008", "Tibia"),
    ("tongue", "21974007", "Tongue"),
    ("trachea", "44567001", "Trachea"),
    ("trapezius", "31764008", "Trapezius muscle"),
    ("ulna", "23416004", "Ulna"),
    ("urinary_bladder", "89837001", "Urinary bladder"),
    ("vertebrae_C1", "14806007", "C1 vertebra"),
    ("vertebrae_C2", "39976000", "C2 vertebra"),
    ("vertebrae_C3", "113205007", "C3 vertebra"),
    ("vertebrae_C4", "5329002", "C4 vertebra"),
    ("vertebrae_C5", "36978003", "C5 vertebra"),
    ("vertebrae_C6", "36054005", "C6 vertebra"),
    ("vertebrae_C7", "87391001", "C7 vertebra"),
    ("vertebrae_L1", "66794005", "L1 vertebra"),
    ("vertebrae_L2", "14293000", "L2 vertebra"),
    ("vertebrae_L3", "36470004", "L3 vertebra"),
    ("vertebrae_L4", "11994002", "L4 vertebra"),
    ("vertebrae_L5", "49668003", "L5 vertebra"),
    ("vertebrae_S1", "65985001", "S1 vertebra"),
    ("vertebrae_T1", "64864005", "T1 vertebra"),
    ("vertebrae_T10", "7610001", "T10 vertebra"),
    ("vertebrae_T11", "12989004", "T11 vertebra"),
    ("vertebrae_T12", "23215003", "T12 vertebra"),
    ("vertebrae_T2", "53733008", "T2 vertebra"),
    ("vertebrae_T3", "1626008", "T3 vertebra"),
    ("vertebrae_T4", "73071006", "T4 vertebra"),
    ("vertebrae_T5", "56401006", "T5 vertebra"),
    ("vertebrae_T6", "45296009", "T6 vertebra"),
    ("vertebrae_T7", "62487009", "T7 vertebra"),
    ("vertebrae_T8", "11068009", "T8 vertebra"),
    ("vertebrae_T9", "82687006", "T9 vertebra"),
];

/// Structures that a healthy body does not have.
const ALTERED: [(&str, &str, &str); 5] = [
    ("kidney_cyst", "367643001", "Cyst"),
    ("lung_nodules", "27925004", "Nodule"),
    ("liver_lesions", "52988006", "Lesion"),
    ("pleural_effusion", "41699000", "Effusion"),
    ("pericardial_effusion", "41699000", "Effusion"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_code_of_their_structure_and_its_side() {
        let left = Some(Code::sct("7771000", "Left"));
        for (name, code, side) in [
            ("liver", "10200004", None),
            ("kidney_left", "64033007", left),
            ("rib_left_12", "43993008", left),
            ("rib_right_1", "48535007", Some(Code::sct("24028007", "Right"))),
            ("heart_atrium_left", "82471001", None),
            ("kidney_cyst_left", "367643001", left),
            ("no_such_organ", "85756007", None),
        ] {
            let found = concept(name);
            assert_eq!((found.property.value, found.side), (code, side), "{name}");
        }
        assert_eq!(concept("kidney_cyst_left").category, ABNORMAL);
    }

    #[test]
    fn names_are_listed_once() {
        let all = || ANATOMY.iter().chain(&ALTERED);
        for (name, code, _) in all() {
            assert_eq!(all().filter(|(other, _, _)| other == name).count(), 1, "{name}");
            assert!(code.bytes().all(|digit| digit.is_ascii_digit()));
        }
    }
}
