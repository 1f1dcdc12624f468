use std::sync::Arc;

use sk_core::{Backbone, BoxError, Candidates, InstructionRack, Policy, Readings, TokenId, Traffic};

use crate::reader::{Lane, Reader};
use crate::{AdapterRack, RemoteError};

/// π_B: the frozen model behind servers, which read N candidates with and without their adapters.
///
/// All requests of a step are concurrent. Nothing needs to be committed, since the servers keep
/// what they have read in their own caches.
pub(crate) struct RemoteBackbone {
    pub(crate) reader: Reader,
    pub(crate) adapters: AdapterRack,
    pub(crate) instructions: InstructionRack,
}

impl RemoteBackbone {
    fn lanes(&self, context: &[TokenId], policies: &[Policy]) -> Result<Vec<Lane>, RemoteError> {
        let own = Arc::new(context.to_vec());
        let lane = |policy: &Policy| match policy {
            Policy::Backbone => Ok(Lane { name: Arc::from(""), adapter: None, prefix: Arc::clone(&own) }),
            Policy::Variant(name) => {
                let (adapter, instruction) = (self.adapters.get(name), self.instructions.get(name));
                if adapter.is_none() && instruction.is_none() {
                    return Err(self.unknown(name));
                }
                let prefix = instruction.map_or_else(|| Arc::clone(&own), |instruction| Arc::new(instruction.context(context)));
                Ok(Lane { name: Arc::clone(name), adapter, prefix })
            }
            Policy::Head(name) => Err(RemoteError::Unsupported {
                what: format!("head \"{name}\""),
                reason: "servers return no hidden states; use an adapter or an instruction",
            }),
        };
        let lanes: Vec<Lane> = policies.iter().map(lane).collect::<Result<_, _>>()?;
        match lanes.iter().find(|lane| lane.prefix.is_empty()) {
            Some(lane) => Err(RemoteError::EmptyContext { policy: lane.policy() }),
            None => Ok(lanes),
        }
    }

    fn unknown(&self, name: &str) -> RemoteError {
        let mut known = self.adapters.names();
        known.extend(self.instructions.names());
        known.sort_unstable();
        known.dedup();
        RemoteError::UnknownPolicy { name: name.to_owned(), known: known.join(", ") }
    }
}

impl Backbone for RemoteBackbone {
    fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        let lanes = self.lanes(context, policies)?;
        let spans: Vec<&[TokenId]> = candidates.iter().map(|candidate| &candidate.tokens[..]).collect();
        let read = if lanes.is_empty() { Vec::new() } else { self.reader.read(&lanes, &spans)? };
        let mut readings = Readings::new();
        for (policy, lane) in policies.iter().zip(read) {
            readings.insert(policy.clone(), lane);
        }
        Ok(readings)
    }

    fn traffic(&self) -> Traffic {
        self.reader.meter.read()
    }
}
