//! The disk's own limit: append and fdatasync, alone and grouped, with the same callers and the same kind of queue as
//! the stores have, but nothing behind it than a file.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::report::{Latencies, Rate};
use crate::turns::under_load;

/// About what the two entries of a step take.
const RECORD: [u8; 140] = [b'x'; 140];

/// One record, one fdatasync, one after the other, on one thread.
pub(crate) fn alone(folder: &Path, time: Duration) -> std::io::Result<Rate> {
    let mut file = File::create(folder.join("alone"))?;
    let (begun, mut latencies) = (Instant::now(), Latencies::default());
    while begun.elapsed() < time {
        let asked = Instant::now();
        file.write_all(&RECORD)?;
        file.sync_data()?;
        latencies.add(asked.elapsed());
    }
    Ok(latencies.rate(begun.elapsed()))
}

/// `callers` tasks that each await their record; one thread writes all that wait with one fdatasync.
pub(crate) async fn grouped(folder: &Path, callers: usize, time: Duration) -> std::io::Result<Rate> {
    let (sender, mut records) = mpsc::unbounded_channel::<(Box<[u8]>, oneshot::Sender<()>)>();
    let mut file = File::create(folder.join("grouped"))?;
    let writer = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut batch, mut bytes) = (Vec::new(), Vec::new());
        while records.blocking_recv_many(&mut batch, 8_192) > 0 {
            bytes.clear();
            for (record, _) in &batch {
                bytes.extend_from_slice(record);
            }
            file.write_all(&bytes)?;
            file.sync_data()?;
            for (_, reply) in batch.drain(..) {
                reply.send(()).expect("every caller waits for its answer");
            }
        }
        Ok(())
    });
    let rate = under_load(callers, time, |_, mut turns| {
        let sender = sender.clone();
        async move {
            while turns.begin() {
                let (reply, answer) = oneshot::channel();
                sender.send((RECORD.into(), reply)).expect("the writer is there");
                answer.await.expect("the writer answers");
                turns.end();
            }
            Ok::<_, std::io::Error>(turns)
        }
    });
    let rate = rate.await?;
    drop(sender);
    writer.join().expect("the writer does not panic")?;
    Ok(rate)
}
