//! A map of few entries.

/// Values by key, in ascending order of the keys. A rank has a few messages in flight at a time. The code of `BTreeMap` for each pair of types would be larger than everything that is
/// stored in it.
#[derive(Debug)]
pub(crate) struct Entries<K, V>(Vec<(K, V)>);

impl<K, V> Default for Entries<K, V> {
    fn default() -> Entries<K, V> {
        Entries(Vec::new())
    }
}

impl<K: Copy + Ord, V> Entries<K, V> {
    /// Returns the place of a key, or the one where it belongs.
    fn find(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by_key(key, |entry| entry.0)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.find(key).ok().map(|place| &self.0[place].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).ok().map(|place| &mut self.0[place].1)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// Returns the value of a key, which is the given one if the key is new.
    pub(crate) fn get_or_insert(&mut self, key: K, value: V) -> &mut V {
        let place = self.find(&key).unwrap_or_else(|place| {
            self.0.insert(place, (key, value));
            place
        });
        &mut self.0[place].1
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (key, value)),
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.find(key).ok().map(|place| self.0.remove(place).1)
    }

    /// Removes the entry of the least key.
    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        if self.0.is_empty() { None } else { Some(self.0.remove(0)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|entry| &entry.1)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|entry| &mut entry.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_changed_and_removed_and_keep_the_order_of_their_keys() {
        let mut entries = Entries::default();
        for (key, value) in [(5, 'e'), (2, 'b'), (9, 'i'), (2, 'c')] {
            entries.insert(key, value);
        }
        assert_eq!(entries.values().collect::<String>(), "cei");
        assert_eq!((entries.get(&2), entries.get(&3), entries.contains(&9)), (Some(&'c'), None, true));
        *entries.get_or_insert(7, 'g') = 'h';
        assert_eq!(*entries.get_or_insert(7, 'x'), 'h');
        if let Some(value) = entries.get_mut(&5) {
            *value = 'f';
        }
        assert_eq!((entries.remove(&9), entries.remove(&9)), (Some('i'), None));
        entries.values_mut().for_each(|value| value.make_ascii_uppercase());
        assert_eq!(
            (entries.len(), entries.pop_first(), entries.pop_first()),
            (3, Some((2, 'C')), Some((5, 'F')))
        );
        assert_eq!((entries.pop_first(), entries.pop_first()), (Some((7, 'H')), None));
    }
}
