//! Gauges of a card from NVIDIA's management library, which is part of the driver and is loaded on
//! first use.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use plimsoll_memory::Bytes;
use plimsoll_plan::DeviceState;

use crate::libraries::MANAGEMENT;

/// The gauges of one card.
pub(super) struct Gauges {
    library: Nvml,
    /// The card by its place on the bus: the library counts others than those that CUDA shows.
    place: String,
}

/// A place on the bus as the library reads it: domain, bus and device.
pub(super) fn place([domain, bus, device]: [u32; 3]) -> String {
    format!("{domain:08x}:{bus:02x}:{device:02x}.0")
}

impl Gauges {
    /// Those of the card at a place; none where the library is not there, or does not start.
    pub(super) fn find(place: String) -> Option<Gauges> {
        let library = Nvml::builder().lib_path(MANAGEMENT.as_ref()).init().ok()?;
        Some(Gauges { library, place })
    }

    /// Returns the state that the gauges show; none if they show nothing.
    pub(super) fn read(&self) -> Option<DeviceState> {
        let card = self.library.device_by_pci_bus_id(self.place.as_str()).ok()?;
        let memory = card.memory_info().ok();
        let state = DeviceState {
            used_bytes: memory.as_ref().map(|memory| Bytes(memory.used)),
            total_bytes: memory.as_ref().map(|memory| Bytes(memory.total)),
            busy_percent: card.utilization_rates().ok().map(|rates| rates.gpu),
            temperature_celsius: card.temperature(TemperatureSensor::Gpu).ok(),
        };
        Some(state).filter(|state| *state != DeviceState::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_in_hexadecimal_digits() {
        assert_eq!(place([0, 101, 0]), "00000000:65:00.0");
        assert_eq!(place([0x10000, 1, 31]), "00010000:01:1f.0");
    }

    #[test]
    fn where_there_is_no_such_card_nothing_is_read_and_nothing_is_said() {
        let gauges = Gauges::find(place([0xffff, 0xff, 0x1f]));
        assert_eq!(gauges.and_then(|gauges| gauges.read()), None);
    }
}
