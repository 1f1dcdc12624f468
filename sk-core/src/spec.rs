use std::sync::{Arc, Mutex, PoisonError};

use crate::{Blade, Simplex, SpecError};

/// A seated blade, with the name by which users refer to it.
#[derive(Clone)]
pub struct Seat {
    name: Arc<str>,
    blade: Arc<dyn Blade>,
}

impl Seat {
    /// Seats `blade` under `name`.
    pub fn new(name: impl Into<Arc<str>>, blade: Arc<dyn Blade>) -> Self {
        Self { name: name.into(), blade }
    }

    /// The name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The blade.
    pub fn blade(&self) -> &Arc<dyn Blade> {
        &self.blade
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Seat").field(&self.name).finish()
    }
}

/// Ω = (𝓑, **w**), the alignment specification: seated blades and their weights on the simplex.
///
/// The type is immutable: each edit creates a new value, so that readers never see a partial edit,
/// and a rejected edit leaves the old value unchanged. An edit copies K reference-counted pointers
/// and K weights, whatever the size of the models (`prop:cost`).
#[derive(Debug, Clone)]
pub struct AlignmentSpec {
    seats: Vec<Seat>,
    weights: Simplex,
}

impl AlignmentSpec {
    /// Creates a specification from blades and their weights, in the same order.
    ///
    /// # Errors
    /// If the numbers differ or a name is used twice.
    pub fn new(seats: Vec<Seat>, weights: Simplex) -> Result<Self, SpecError> {
        if seats.len() != weights.len() {
            return Err(SpecError::Count { weights: weights.len(), blades: seats.len() });
        }
        for (i, seat) in seats.iter().enumerate() {
            if seats[..i].iter().any(|other| other.name == seat.name) {
                return Err(SpecError::Duplicate { name: seat.name.to_string() });
            }
        }
        Ok(Self { seats, weights })
    }

    /// Returns the seats, in the order of the weights.
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Returns **w**.
    pub fn weights(&self) -> &Simplex {
        &self.weights
    }

    /// Returns the weight of a blade, if it is seated.
    pub fn weight(&self, name: &str) -> Option<f64> {
        self.position(name).ok().map(|i| self.weights.as_slice()[i])
    }

    /// Returns the seats of positive weight, with their weights.
    pub fn active(&self) -> impl Iterator<Item = (&Seat, f64)> {
        self.seats.iter().zip(self.weights.as_slice().iter().copied()).filter(|&(_, w)| w > 0.0)
    }

    /// Returns the same blades with other weights.
    ///
    /// # Errors
    /// If the number of weights differs from that of blades.
    pub fn with_weights(&self, weights: Simplex) -> Result<Self, SpecError> {
        Self::new(self.seats.clone(), weights)
    }

    /// Returns the same blades with weights given by name, scaled to sum to one. A blade that is
    /// not named gets zero.
    ///
    /// # Errors
    /// If a name is not seated or given twice, a weight is negative or not finite, or all weights
    /// are zero.
    pub fn with_named_weights<'a>(&self, named: impl IntoIterator<Item = (&'a str, f64)>) -> Result<Self, SpecError> {
        let mut weights = vec![None; self.seats.len()];
        for (name, value) in named {
            let index = self.position(name)?;
            if !value.is_finite() || value < 0.0 {
                return Err(SpecError::Weight { name: name.to_owned(), value, expected: "finite and not negative" });
            }
            if weights[index].replace(value).is_some() {
                return Err(SpecError::TwoWeights { name: name.to_owned() });
            }
        }
        self.with_weights(Simplex::normalized(weights.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>())?)
    }

    /// Adds a blade with weight `weight` in [0, 1]. The others share the rest in their present
    /// proportions.
    ///
    /// # Errors
    /// If the name is taken or the weight is not in [0, 1].
    pub fn seat(&self, seat: Seat, weight: f64) -> Result<Self, SpecError> {
        if !(0.0..=1.0).contains(&weight) {
            return Err(SpecError::Weight { name: seat.name.to_string(), value: weight, expected: "in [0, 1]" });
        }
        let mut weights: Vec<f64> = self.weights.as_slice().iter().map(|w| w * (1.0 - weight)).collect();
        weights.push(weight);
        let mut seats = self.seats.clone();
        seats.push(seat);
        Self::new(seats, Simplex::normalized(weights)?)
    }

    /// Removes the blade `name`. The others keep their proportions.
    ///
    /// # Errors
    /// If it is not seated, or if no other blade has a positive weight.
    pub fn unseat(&self, name: &str) -> Result<Self, SpecError> {
        let index = self.position(name)?;
        let mut seats = self.seats.clone();
        seats.remove(index);
        let mut weights = self.weights.as_slice().to_vec();
        weights.remove(index);
        let weights = Simplex::normalized(weights).map_err(|_| SpecError::NoneLeft { name: name.to_owned() })?;
        Self::new(seats, weights)
    }

    /// Replaces the blade `name` by another one with the same weight.
    ///
    /// # Errors
    /// If `name` is not seated, or if another seat has the new name.
    pub fn swap(&self, name: &str, seat: Seat) -> Result<Self, SpecError> {
        let index = self.position(name)?;
        let mut seats = self.seats.clone();
        seats[index] = seat;
        Self::new(seats, self.weights.clone())
    }

    fn position(&self, name: &str) -> Result<usize, SpecError> {
        self.seats.iter().position(|seat| &*seat.name == name).ok_or_else(|| SpecError::Unknown {
            name: name.to_owned(),
            seated: self.seats.iter().map(|seat| &*seat.name).collect::<Vec<_>>().join(", "),
        })
    }
}

/// A shared handle on Ω. Clones refer to the same specification. Edits are atomic and serialised,
/// and a step reads one snapshot.
#[derive(Debug, Clone)]
pub struct SpecHandle(Arc<Mutex<Arc<AlignmentSpec>>>);

impl SpecHandle {
    /// Creates a handle on `spec`.
    pub fn new(spec: AlignmentSpec) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(spec))))
    }

    /// Returns the current Ω. Later edits do not affect the returned value.
    pub fn snapshot(&self) -> Arc<AlignmentSpec> {
        Arc::clone(&self.lock())
    }

    /// Replaces Ω by the result of `edit`, and returns it. Edits from several threads are
    /// serialised; none is lost.
    ///
    /// Steps and other edits wait while `edit` runs, so load adapters beforehand. Using the handle
    /// inside `edit` deadlocks.
    ///
    /// # Errors
    /// The error of `edit`; Ω is then unchanged.
    pub fn edit<E>(&self, edit: impl FnOnce(&AlignmentSpec) -> Result<AlignmentSpec, E>) -> Result<Arc<AlignmentSpec>, E> {
        let mut current = self.lock();
        *current = Arc::new(edit(&current)?);
        Ok(Arc::clone(&current))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<AlignmentSpec>> {
        // The value is replaced as a whole, so a panic in an edit cannot leave it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BoxError, Observation, Score};

    struct Nothing;

    impl Blade for Nothing {
        fn score(&self, _: &Observation<'_>, _: &mut [Score]) -> Result<(), BoxError> {
            Ok(())
        }
    }

    fn seat(name: &str) -> Seat {
        Seat::new(name, Arc::new(Nothing))
    }

    fn spec() -> AlignmentSpec {
        let seats = ["helpful", "honest", "harmless"].map(seat).to_vec();
        AlignmentSpec::new(seats, Simplex::new([0.5, 0.3, 0.2]).unwrap()).unwrap()
    }

    /// Rounding error of a few products and quotients near one.
    const ROUNDING: f64 = 1e-12;

    #[test]
    fn edits_keep_the_proportions_of_the_others() {
        let seated = spec().seat(seat("concise"), 0.5).unwrap();
        for (name, weight) in [("helpful", 0.25), ("honest", 0.15), ("harmless", 0.1), ("concise", 0.5)] {
            assert!((seated.weight(name).unwrap() - weight).abs() < ROUNDING);
        }
        let unseated = spec().unseat("helpful").unwrap();
        assert!((unseated.weight("honest").unwrap() - 0.6).abs() < ROUNDING);
        assert_eq!(unseated.weight("helpful"), None);
        let swapped = spec().swap("honest", seat("truthful")).unwrap();
        assert_eq!(swapped.weight("truthful"), Some(0.3));
        assert_eq!(spec().seat(seat("idle"), 0.0).unwrap().weight("idle"), Some(0.0));
        assert_eq!(spec().seat(seat("only"), 1.0).unwrap().active().count(), 1);
        let named = spec().with_named_weights([("honest", 3.0), ("harmless", 1.0), ("helpful", 0.0)]).unwrap();
        assert_eq!(
            named.active().map(|(s, w)| (s.name().to_string(), w)).collect::<Vec<_>>(),
            [("honest".to_owned(), 0.75), ("harmless".to_owned(), 0.25)]
        );
    }

    #[test]
    fn refused_edits_name_the_blade_and_change_nothing() {
        let handle = SpecHandle::new(spec());
        let before = handle.snapshot();
        let refused = [
            handle.edit(|s| s.unseat("funny")).unwrap_err(),
            handle.edit(|s| s.seat(seat("honest"), 0.1)).unwrap_err(),
            handle.edit(|s| s.with_named_weights([("honest", -1.0)])).unwrap_err(),
            handle.edit(|s| s.with_named_weights([("honest", f64::NAN)])).unwrap_err(),
            handle.edit(|s| s.swap("honest", seat("helpful"))).unwrap_err(),
            handle.edit(|s| s.seat(seat("x"), 1.5)).unwrap_err(),
            handle.edit(|s| s.with_weights(Simplex::uniform(2).unwrap())).unwrap_err(),
            handle.edit(|s| s.with_named_weights([("honest", 1.0), ("honest", 0.0)])).unwrap_err(),
        ];
        assert!(refused[0].to_string().contains("\"funny\"; seated: helpful, honest, harmless"));
        assert_eq!(refused[2].to_string(), "weight of blade \"honest\" is -1; it must be finite and not negative");
        assert_eq!(refused[5].to_string(), "weight of blade \"x\" is 1.5; it must be in [0, 1]");
        assert_eq!(refused[7].to_string(), "blade \"honest\" is given two weights; give it one");
        assert!(Arc::ptr_eq(&before, &handle.snapshot()));
        let vertex = spec().with_named_weights([("honest", 1.0)]).unwrap();
        assert!(matches!(vertex.unseat("honest"), Err(SpecError::NoneLeft { .. })));
    }

    #[test]
    fn concurrent_edits_are_whole_and_none_is_lost() {
        let handle = SpecHandle::new(spec());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let handle = handle.clone();
                scope.spawn(move || {
                    for i in 0..50 {
                        let name = format!("{thread}-{i}");
                        handle.edit(|s| s.seat(seat(&name), 0.001)).unwrap();
                        let snapshot = handle.snapshot();
                        assert_eq!(snapshot.seats().len(), snapshot.weights().len());
                    }
                });
            }
        });
        assert_eq!(handle.snapshot().seats().len(), 3 + 4 * 50);
    }
}
