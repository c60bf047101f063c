//! The smallest loss that the check still refuses.

use crate::model::loss::{Loss, LostParts};

/// The most losses that are tried.
const TRIALS_MAX: usize = 500;

/// Takes lost parts back, one at a time, as long as the check fails without them.
pub fn shrink(loss: Loss, mut fails: impl FnMut(&Loss) -> bool) -> Loss {
    let mut smallest = loss;
    let mut trials = 0;
    loop {
        let mut smaller = None;
        for candidate in reductions(&smallest) {
            trials += 1;
            if trials > TRIALS_MAX {
                return smallest;
            }
            if fails(&candidate) {
                smaller = Some(candidate);
                break;
            }
        }
        match smaller {
            Some(candidate) => smallest = candidate,
            None => return smallest,
        }
    }
}

/// Each loss that lacks a part of this one: halves of its requests first, then single ones, then
/// the torn sectors.
fn reductions(loss: &Loss) -> Vec<Loss> {
    let numbers: Vec<u64> = loss.requests.keys().copied().collect();
    let mut reductions = Vec::new();
    let mut length = numbers.len() / 2;
    while length > 0 {
        for kept_again in numbers.chunks(length) {
            let mut requests = loss.requests.clone();
            requests.retain(|number, _| !kept_again.contains(number));
            reductions.push(Loss { requests });
        }
        length /= 2;
    }
    if numbers.len() == 1 {
        reductions.push(Loss::default());
    }
    for (number, parts) in &loss.requests {
        if parts.torn.is_some() {
            let mut requests = loss.requests.clone();
            requests.insert(*number, LostParts { torn: None, ..parts.clone() });
            requests.retain(|_, parts| !parts.is_empty());
            reductions.push(Loss { requests });
        }
    }
    reductions
}
