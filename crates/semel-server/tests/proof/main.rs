//! The proof: real servers in an environment that tries to break what Semel promises.

mod cluster;
mod disk;
mod faults;
mod image;
mod journal;
mod power;
mod proxy;
mod said;
mod starts;
mod victim;

use std::process::ExitCode;

use libtest_mimic::Arguments;

/// One trial per function, named after the module and the function.
macro_rules! trials {
    ($($name:ident),+ $(,)?) => {{
        let area = module_path!().rsplit("::").next().expect("a module has a name");
        vec![$(libtest_mimic::Trial::test(format!("{area}::{}", stringify!($name)), || {
            crate::runtime().block_on($name())
        })),+]
    }};
}
pub(crate) use trials;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = [proxy::trials(), cluster::trials(), faults::trials(), disk::trials(), power::trials()];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime can be made")
}
