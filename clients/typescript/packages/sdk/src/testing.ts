import { spawn, type ChildProcess } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Semel, type RunHandle, type RunView } from './client.js';
import { millis, type Duration } from './duration.js';
import { never } from './run.js';
import type { WorkerOptions } from './worker.js';

function binary(): string {
  const named = process.env['SEMEL_BIN'];
  if (named !== undefined && named !== '') return named;
  try {
    return createRequire(import.meta.url).resolve(`@semel/server-${process.platform}-${process.arch}/semel`);
  } catch {
    return 'semel';
  }
}

/** A Semel server of its own in a temporary folder, for tests. */
export class TestServer implements AsyncDisposable {
  private constructor(readonly url: string, private readonly process: ChildProcess, private readonly folder: string) {}

  /** Starts a server: the binary of `SEMEL_BIN`, of the package `semel`, or in the path. With a manual clock, `advance` moves its time. */
  static async start(options: { clock?: 'machine' | 'manual' } = {}): Promise<TestServer> {
    const folder = await mkdtemp(join(tmpdir(), 'semel-'));
    const args = ['dev', '--listen', '127.0.0.1:0', '--folder', folder, '--clock', options.clock ?? 'machine'];
    const server = spawn(binary(), args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const url = await new Promise<string>((resolve, reject) => {
      let said = '';
      const listen = (chunk: Buffer) => {
        said += chunk.toString();
        const found = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
        if (found) resolve(found[0]);
      };
      server.stdout.on('data', listen);
      server.stderr.on('data', listen);
      server.on('error', reject);
      server.on('exit', () => reject(new Error(`the server has ended: ${said}`)));
    });
    return new TestServer(url, server, folder);
  }

  /** A client of this server. */
  client(): Semel {
    return new Semel({ url: this.url });
  }

  /** Moves the time of a server with a manual clock forward: a sleep of seven days is over after `advance('7d')`. */
  async advance(by: Duration): Promise<void> {
    const body = JSON.stringify({ advanceMs: millis(by) });
    const answer = await fetch(`${this.url}/api/v1/dev/clock`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    if (!answer.ok) throw new Error(await answer.text());
  }

  async stop(): Promise<void> {
    const ended = new Promise(resolve => this.process.once('exit', resolve));
    this.process.kill('SIGKILL');
    await ended;
    await rm(this.folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** A workflow that is to survive a crash at any moment. */
export interface CrashCase {
  semel: Semel;
  /** Makes the worker's options anew for each play, so that counters begin at zero. */
  worker: () => WorkerOptions;
  /** Starts the run. `play` differs from play to play: use it in keys and tokens. */
  start: (play: string) => Promise<RunHandle>;
  /** What happens from outside meanwhile, such as deliveries. */
  during?: (play: string, run: RunHandle) => Promise<void>;
  /** Checks the end of a play. `boundary` says where the worker crashed. */
  check: (run: RunView, boundary: string) => void | Promise<void>;
}

/**
 * Plays a workflow once to count its boundaries (before and after each commit, at both ends of each body), then once for each of
 * them with a worker that crashes there and another one that goes on. Gives the number of boundaries.
 */
export async function crashEverywhere(test: CrashCase): Promise<number> {
  let boundaries = 0;
  await play(test, 'whole', () => { boundaries += 1; return false; });
  for (let at = 1; at <= boundaries; at++) {
    let passed = 0;
    await play(test, `crash-${at}`, () => ++passed === at);
  }
  return boundaries;
}

async function play(test: CrashCase, name: string, crashes: () => boolean): Promise<void> {
  const play = `${name}-${Math.random().toString(36).slice(2)}`;
  const make = () => test.semel.worker({ log: () => undefined, ...test.worker() });
  let where: string | undefined;
  let over = false;
  let second: Promise<{ kill(): Promise<void> }> | undefined;
  const first = make();
  first.probe = async (_, moment) => {
    if (over || where !== undefined || !crashes()) return;
    where = moment;
    second = first.kill().then(() => make().start());
    return never();
  };
  const run = await test.start(play);
  await first.start();
  const during = test.during?.(play, run);
  await run.result({ timeout: '60s' }).catch(() => undefined);
  await during;
  // The last commit may be answered after the run has ended.
  over = true;
  await (second ?? Promise.resolve(first)).then(worker => worker.kill());
  await test.check(await run.get(), where ?? 'nowhere');
}
