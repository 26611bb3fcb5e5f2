import { spawn, type ChildProcess } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RunFailed, Semel, type RunHandle, type RunView } from './client.js';
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

/** Effects by their keys, as a provider has them that recognises keys: a repeated call gets the first answer. */
export class Effects<T = unknown> {
  private readonly answers = new Map<string, { value: T; calls: number }>();

  /** A call of the provider, from a body: `a => charges.take(a.key, () => 'ch_1')`. */
  take(key: string, make: () => T): T {
    const known = this.answers.get(key) ?? { value: make(), calls: 0 };
    known.calls += 1;
    this.answers.set(key, known);
    return known.value;
  }

  /** Number of effects: calls under one key are one. */
  get count(): number {
    return this.answers.size;
  }

  /** Number of calls under each key. */
  get calls(): Map<string, number> {
    return new Map([...this.answers].map(([key, { calls }]) => [key, calls]));
  }
}

/** Counts effects by their keys. */
export function effects<T>(): Effects<T> {
  return new Effects<T>();
}

/** A workflow that is to survive a crash at any moment. */
export interface CrashCase {
  semel: Semel;
  /** Makes the options of a worker. It is called for the first worker of a play, and for the one that takes over. */
  worker: (play: string) => WorkerOptions;
  /** Starts the run. `play` differs from play to play: use it in keys and tokens. */
  start: (play: string) => Promise<RunHandle>;
  /** What happens from outside meanwhile, such as deliveries. */
  during?: (play: string, run: RunHandle) => Promise<void>;
  /** Checks the end of a play. `boundary` says where the worker crashed; it is `nowhere` in a play without a crash. */
  check: (run: RunView, boundary: string) => void | Promise<void>;
}

/** A boundary that so many plays in a row do not reach is beyond the last one: how many there are may differ from play to play. */
const TRIES = 2;

/**
 * Plays a workflow once without a crash, then once for each of its boundaries (before and after each commit, at both ends of each
 * body) with a worker that crashes there and another one that goes on, until a boundary is not reached any more. Gives the number of
 * boundaries at which a worker has crashed; it is an error if there is none.
 */
export async function crashEverywhere(test: CrashCase): Promise<number> {
  await play(test, undefined);
  for (let at = 1; ; at++) {
    let crashed = false;
    for (let tries = 0; !crashed && tries < TRIES; tries++) crashed = await play(test, at);
    if (crashed) continue;
    if (at === 1) throw new Error('no boundary was reached: does the worker execute the workflow that is started?');
    return at - 1;
  }
}

/** Plays once; true if the worker has crashed. Without a number it does not. */
async function play(test: CrashCase, at: number | undefined): Promise<boolean> {
  const play = `${at === undefined ? 'whole' : `crash-${at}`}-${Math.random().toString(36).slice(2)}`;
  const make = () => test.semel.worker({ log: () => undefined, ...test.worker(play) });
  let passed = 0, unanswered = 0;
  let where: string | undefined, main: string | undefined;
  let over = false;
  let second: Promise<{ kill(): Promise<void> }> | undefined;
  const first = make();
  first.probe = async (run, moment) => {
    if (run === main && moment === 'before a commit') unanswered += 1;
    if (run === main && moment === 'after a commit') unanswered -= 1;
    if (over || where !== undefined || ++passed !== at) return;
    where = moment;
    second = first.kill().then(() => make().start());
    return never();
  };
  const run = await test.start(play);
  main = run.id;
  await first.start();
  const during = test.during?.(play, run);
  const ended = await run.result({ timeout: '60s' }).then(() => true, error => error instanceof RunFailed);
  await during;
  // The last commit may be answered after the run has ended.
  while (ended && where === undefined && unanswered > 0) await new Promise(resolve => setImmediate(resolve));
  over = true;
  await (second ?? Promise.resolve(first)).then(worker => worker.kill());
  await test.check(await run.get(), where ?? 'nowhere');
  return where !== undefined;
}
