use semel::{Ctx, Engine, Limits, Result};
use std::time::Instant;
async fn ten(ctx: Ctx, n: u64) -> Result<u64> {
    let mut sum = n;
    for i in 0..10u64 {
        sum += ctx.step("s").key(i).run(async |_| Ok(i)).await?;
    }
    Ok(sum)
}
#[tokio::main]
async fn main() -> Result<()> {
    let conc: usize = std::env::args().nth(1).map_or(4096, |a| a.parse().unwrap());
    let total: usize = std::env::args().nth(2).map_or(60000, |a| a.parse().unwrap());
    let store = std::env::args().nth(3);
    let folder = tempfile::tempdir()?;
    let path = store.unwrap_or_else(|| folder.path().join("x.db").to_string_lossy().into_owned());
    let engine = Engine::builder()
        .store(path)
        .workflow("ten", ten)
        .limits(Limits { driven: 8192, ..Limits::default() })
        .open()
        .await?;
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    let next = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for _ in 0..conc {
        let (engine, next) = (engine.clone(), next.clone());
        tasks.spawn(async move {
            loop {
                let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if n >= total {
                    return;
                }
                let run = engine.start(ten, n as u64).await.unwrap();
                assert_eq!(run.result().await.unwrap(), n as u64 + 45);
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    let t = began.elapsed().as_secs_f64();
    println!("{conc} callers: {:.0} runs/s {:.0} steps/s", total as f64 / t, total as f64 * 10.0 / t);
    Ok(())
}
