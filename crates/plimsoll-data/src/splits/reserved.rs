//! A parser of folds within a budget: the memory of each name is reserved before it is kept.

use std::fmt;
use std::marker::PhantomData;

use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::files_memory::FilesMemory;
use crate::splits::Fold;

/// The holder of the memory of folds.
pub(super) const HOLDER: &str = "folds";

/// The bytes that are reserved at a time.
const STEP: u64 = 64 << 10;

/// The most that a name takes beside its text: a growing list has a capacity of up to twice its length, and is copied from one half as
/// large; the checks keep two references.
const NAME: u64 = 3 * size_of::<String>() as u64 + 4 * size_of::<usize>() as u64;

/// The most that a fold takes beside its names.
const FOLD: u64 = 3 * size_of::<Fold>() as u64;

/// The reason why folds could not be parsed.
pub(super) enum Problem {
    Json(serde_json::Error),
    OverBudget(OverBudget),
}

/// Parses a list of folds. Returns also the reservation for them.
pub(super) fn parse(text: &[u8], budget: &Budget) -> Result<(Vec<Fold>, FilesMemory), Problem> {
    let mut room = Room { budget, needed: 0, held: None, refused: None };
    let mut from = serde_json::Deserializer::from_slice(text);
    let parsed =
        ListSeed(&mut room, PhantomData).deserialize(&mut from).and_then(|folds| from.end().map(|()| folds));
    match (parsed, room.refused) {
        (_, Some(refused)) => Err(Problem::OverBudget(refused)),
        (Err(problem), None) => Err(Problem::Json(problem)),
        (Ok(folds), None) => Ok((folds, room.held.map(FilesMemory::from).unwrap_or_default())),
    }
}

/// The bytes that are reserved for folds.
pub(super) fn bytes(folds: &[Fold]) -> Bytes {
    let of = |fold: &Fold| FOLD + fold.train.iter().chain(&fold.val).map(name_bytes).sum::<u64>();
    in_steps(folds.iter().map(of).sum())
}

fn name_bytes(name: impl AsRef<str>) -> u64 {
    NAME + name.as_ref().len() as u64
}

fn in_steps(bytes: u64) -> Bytes {
    Bytes(bytes.div_ceil(STEP).saturating_mul(STEP))
}

struct Room<'a> {
    budget: &'a Budget,
    needed: u64,
    held: Option<Reservation>,
    /// The refusal of the budget.
    refused: Option<OverBudget>,
}

impl Room<'_> {
    fn add<E: Error>(&mut self, bytes: u64) -> Result<(), E> {
        self.needed = self.needed.saturating_add(bytes);
        if self.held.as_ref().is_none_or(|held| held.bytes() < Bytes(self.needed)) {
            // The old reservation makes room for the new one, which includes it.
            self.held = None;
            match self.budget.reserve(HOLDER, in_steps(self.needed)) {
                Ok(held) => self.held = Some(held),
                Err(refused) => {
                    self.refused = Some(refused);
                    return Err(E::custom("there is no room for it"));
                }
            }
        }
        Ok(())
    }
}

/// A value whose memory is reserved while it is parsed.
trait Parsed: Sized {
    /// Its name in an error.
    const EXPECTED: &str;
    /// The same of a list of such values.
    const EXPECTED_LIST: &str;

    fn parse<'de, D: Deserializer<'de>>(room: &mut Room<'_>, from: D) -> Result<Self, D::Error>;
}

/// Parses a value.
struct Seed<'a, 'b, T>(&'a mut Room<'b>, PhantomData<T>);

impl<'de, T: Parsed> DeserializeSeed<'de> for Seed<'_, '_, T> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        T::parse(self.0, from)
    }
}

/// Parses a list of values.
struct ListSeed<'a, 'b, T>(&'a mut Room<'b>, PhantomData<T>);

impl<'de, T: Parsed> DeserializeSeed<'de> for ListSeed<'_, '_, T> {
    type Value = Vec<T>;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Vec<T>, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: Parsed> Visitor<'de> for ListSeed<'_, '_, T> {
    type Value = Vec<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED_LIST)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Seed(&mut *self.0, PhantomData))? {
            values.push(value);
        }
        Ok(values)
    }
}

impl Parsed for Fold {
    const EXPECTED: &str = "a fold with `train` and `val`";
    const EXPECTED_LIST: &str = "a list of folds";

    fn parse<'de, D: Deserializer<'de>>(room: &mut Room<'_>, from: D) -> Result<Fold, D::Error> {
        room.add(FOLD)?;
        from.deserialize_map(FoldVisitor(room))
    }
}

struct FoldVisitor<'a, 'b>(&'a mut Room<'b>);

impl<'de> Visitor<'de> for FoldVisitor<'_, '_> {
    type Value = Fold;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Fold::EXPECTED)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fold, A::Error> {
        let (mut train, mut val) = (None, None);
        while let Some(key) = map.next_key::<Key>()? {
            let (list, name) = match key {
                Key::Train => (&mut train, "train"),
                Key::Val => (&mut val, "val"),
            };
            if list.is_some() {
                return Err(A::Error::duplicate_field(name));
            }
            *list = Some(map.next_value_seed(ListSeed(&mut *self.0, PhantomData))?);
        }
        let train = train.ok_or_else(|| A::Error::missing_field("train"))?;
        let val = val.ok_or_else(|| A::Error::missing_field("val"))?;
        Ok(Fold { train, val })
    }
}

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Train,
    Val,
}

impl Parsed for String {
    const EXPECTED: &str = "the name of a case";
    const EXPECTED_LIST: &str = "a list of names of cases";

    fn parse<'de, D: Deserializer<'de>>(room: &mut Room<'_>, from: D) -> Result<String, D::Error> {
        from.deserialize_str(NameVisitor(room))
    }
}

struct NameVisitor<'a, 'b>(&'a mut Room<'b>);

impl Visitor<'_> for NameVisitor<'_, '_> {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(String::EXPECTED)
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<String, E> {
        self.0.add(name_bytes(name))?;
        Ok(name.to_string())
    }
}
