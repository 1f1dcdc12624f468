//! The threads that use a GPU, and the lock that keeps them out of a recording.

use std::cell::OnceCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::Device;

use super::is_cpu;

/// Runs `work` while no other thread uses a GPU. Returns `None`, without running it, if one does.
pub(crate) fn if_only_user<T>(work: impl FnOnce() -> T) -> Option<T> {
    let users = USERS.try_lock();
    users.as_ref().is_ok_and(|users| **users == 1).then(work)
}

/// The number of threads that run passes on a GPU.
static USERS: Mutex<usize> = Mutex::new(0);

/// Counts its thread among the users until the thread ends.
struct User;

impl Drop for User {
    fn drop(&mut self) {
        *users() -= 1;
    }
}

fn users() -> MutexGuard<'static, usize> {
    // The value is one number, so it is consistent even after a panic.
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static HERE: OnceCell<User> = const { OnceCell::new() };
}

/// Counts the calling thread as a user if `device` is a GPU. Waits for a thread that records.
pub(crate) fn register_thread(device: &Device) {
    if is_cpu(device) {
        return;
    }
    HERE.with(|here| {
        here.get_or_init(|| {
            *users() += 1;
            User
        });
    });
}

/// Keeps other threads from recording until the guard is dropped. Waits for a thread that records.
///
/// Take it before tensors are loaded onto a GPU, since all work that a GPU receives during a
/// recording becomes part of the recording. A thread that takes it twice deadlocks.
pub(crate) fn block_recording(device: &Device) -> Option<impl Drop + use<>> {
    (!is_cpu(device)).then(users)
}
