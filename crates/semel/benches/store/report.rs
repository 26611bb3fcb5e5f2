//! Figures: latencies, rates, the memory of this process, and the file they are written to.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// Latencies in buckets of about 9 %: flat in memory whatever their number, and small, for thousands of callers have one.
#[derive(Clone)]
pub(crate) struct Latencies(Vec<u32>);

const BUCKETS_PER_DOUBLING: f64 = 8.0;

impl Default for Latencies {
    /// Up to half a minute.
    fn default() -> Self {
        Self(vec![0; 280])
    }
}

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        let nanos = latency.as_nanos().max(1) as f64;
        let bucket = (nanos.log2() * BUCKETS_PER_DOUBLING) as usize;
        let last = self.0.len() - 1;
        self.0[bucket.min(last)] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
    }

    pub(crate) fn rate(&self, elapsed: Duration) -> Rate {
        let count: u64 = self.0.iter().map(|n| u64::from(*n)).sum();
        Rate {
            per_second: count as f64 / elapsed.as_secs_f64(),
            p50_micros: self.quantile(0.5),
            p99_micros: self.quantile(0.99),
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        let wanted = (self.0.iter().map(|n| f64::from(*n)).sum::<f64>() * share) as u64;
        let mut seen = 0;
        let bucket = self.0.iter().position(|count| {
            seen += u64::from(*count);
            seen > wanted
        });
        bucket.map_or(0.0, |bucket| 2f64.powf(bucket as f64 / BUCKETS_PER_DOUBLING) / 1_000.0)
    }
}

/// Rate and latencies of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
}

impl Rate {
    /// The one in the middle.
    pub(crate) fn middle(mut rates: Vec<Self>) -> Self {
        rates.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        rates[rates.len() / 2]
    }
}

/// All figures, printed as they come and written at the end.
#[derive(Default)]
pub(crate) struct Report(Map<String, Value>);

impl Report {
    pub(crate) fn rate(&mut self, name: &str, rate: Rate) {
        let Rate { per_second, p50_micros, p99_micros } = rate;
        println!("  {name:<28} {per_second:>9.0}/s  p50 {p50_micros:>7.0} µs  p99 {p99_micros:>7.0} µs");
        let figures = json!({
            "perSecond": per_second.round(),
            "p50Micros": p50_micros.round(),
            "p99Micros": p99_micros.round(),
        });
        self.0.insert(name.to_owned(), figures);
    }

    pub(crate) fn number(&mut self, name: &str, number: f64) {
        let digits = if number.abs() < 10.0 { 2 } else { 0 };
        println!("  {name:<40} {number:>12.digits$}");
        self.0.insert(name.to_owned(), json!(rounded(number)));
    }

    /// A figure that is to be at least so large.
    pub(crate) fn goal(&mut self, name: &str, found: f64, least: f64) {
        self.judge(name, found, &json!({ "atLeast": least }), found >= least);
    }

    /// A figure that is to be at most so large.
    pub(crate) fn limit(&mut self, name: &str, found: f64, most: f64) {
        self.judge(name, found, &json!({ "atMost": most }), found <= most);
    }

    /// The rate noted under a name.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.0[name]["perSecond"].as_f64().expect("a rate that was noted")
    }

    /// What was to be shown, once more and together.
    pub(crate) fn summary(&self) {
        println!("\n{:<58} {:>12} {:>12}", "goal", "bound", "found");
        for (name, goal) in self.0.get("goals").and_then(Value::as_object).into_iter().flatten() {
            let (bound, sign) = match goal["bound"]["atLeast"].as_f64() {
                Some(least) => (least, ">="),
                None => (goal["bound"]["atMost"].as_f64().unwrap_or_default(), "<="),
            };
            let found = goal["found"].as_f64().unwrap_or_default();
            let missed = if goal["met"] == true { "" } else { "MISSED" };
            println!("{name:<58} {:>12} {found:>12} {missed}", format!("{sign} {bound}"));
        }
    }

    pub(crate) fn write(self, path: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(path.parent().expect("a file in a folder"))?;
        std::fs::write(path, serde_json::to_string_pretty(&self.0)?)
    }

    fn judge(&mut self, name: &str, found: f64, bound: &Value, met: bool) {
        println!("  {} {name}: {found:.2} {bound}", if met { "met   " } else { "MISSED" });
        let goals = self.0.entry("goals").or_insert_with(|| json!({}));
        goals[name] = json!({ "found": rounded(found), "bound": bound, "met": met });
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

/// The resident memory of this process in MiB: now (`VmRSS:`), or the most there ever was (`VmHWM:`).
pub(crate) fn resident_mib(what: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap_or_default();
    let kib: f64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
    kib / 1024.0
}
