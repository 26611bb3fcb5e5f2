import { Attempt } from './ctx.js';
import { Ctx } from './ctx.js';
import { millis, type Duration } from './duration.js';
import { failOf, SemelError, viewOf } from './errors.js';
import { checkProtocol, type Call, type Transport } from './http.js';
import { decode, encode, encodeGiven } from './json.js';
import { idOf, uuid7, uuidText } from './keys.js';
import { Branch, Run, type Host } from './run.js';
import type { Arrival, Claims, Commit, CommitAnswer, FoldedRun, RunNews } from './wire.js';
import { checked, type AnyWorkflow } from './workflow.js';

/** A step of a queue, as its function sees it. */
export interface QueueTask {
  /** The effect key: the same on every attempt. */
  key: string;
  attempt: number;
  fence: number;
  signal: AbortSignal;
}

export interface WorkerOptions {
  /** The workflows that this worker executes. */
  workflows?: AnyWorkflow[];
  /** Functions for steps of queues, by the queue's name. */
  queues?: { [queue: string]: (input: unknown, task: QueueTask) => unknown };
  /** Name of the worker, for people; host name and process by default. */
  name?: string;
  /** Length of the lease: how long after this process dies its runs are due for others; 10s by default. */
  lease?: Duration;
  /** Maximum number of runs that are driven at the same time; 1,000 by default. */
  slots?: number;
  /** Receives what people should know; `console` by default. */
  log?: (level: 'info' | 'warn' | 'error', message: string) => void;
}

/** Maximum number of commits in one request, and of requests under way. */
const COMMITS = 1_000;
const REQUESTS = 2;
/** Maximum length of a request in characters, if it has more than one commit; the server takes 16 MiB. */
const REQUEST = 4 * 1024 * 1024;
/** How long a claim waits at the server, in milliseconds. */
const WAIT = 20_000;
/** Pause after a call that failed for a reason that time may mend. */
const PAUSE = 500;
/** Pause after a look or a claim that has found nothing: a server that stops answers them at once. */
const EMPTY = 20;

interface Assignment {
  run: string;
  queue: string;
  input: unknown;
  key: string;
  attempt: number;
  fence: number;
}

interface Queued {
  run: string;
  /** The commit as it travels. */
  text: string;
  answer: (answer: CommitAnswer) => void;
}

/** A process that executes runs of a server. It has one lease for all of them. */
export class Worker implements Host, AsyncDisposable {
  /** For tests: see `Host.probe`. */
  probe?: NonNullable<Host['probe']>;

  private readonly runs = new Map<string, Run>();
  private readonly tasks = new Map<string, { fence: number; abort: AbortController }>();
  private readonly due = new Set<Run>();
  private readonly options: Required<Omit<WorkerOptions, 'lease'>> & { lease: number };
  private readonly loops: Promise<void>[] = [];
  private node = '';
  /** Settles when the node is registered. */
  private joined: Promise<void> = Promise.resolve();
  /** What is known of the store's clock: its time, when that was asked for, and when the answer came. */
  private clock = { now: Date.now(), sent: performance.now(), received: performance.now() };
  private commits: Queued[] = [];
  private requests = 0;
  private turning = false;
  private stopping = false;
  private stopped = new AbortController();
  private waiting: (() => void)[] = [];

  constructor(private readonly transport: Transport, options: WorkerOptions) {
    this.options = {
      workflows: options.workflows ?? [],
      queues: options.queues ?? {},
      name: options.name ?? `node-${globalThis.process?.pid ?? 0}`,
      lease: millis(options.lease ?? '10s'),
      slots: options.slots ?? 1_000,
      log: options.log ?? ((level, message) => console[level](`semel: ${message}`)),
    };
    if (this.options.workflows.length === 0 && Object.keys(this.options.queues).length === 0) {
      throw new TypeError('a worker without workflows and queues has nothing to do');
    }
  }

  // The life of a worker

  /** Registers the worker and begins to claim. */
  async start(): Promise<this> {
    await this.join();
    this.loops.push(this.beat());
    if (this.options.workflows.length > 0) this.loops.push(this.claimRuns());
    if (Object.keys(this.options.queues).length > 0) this.loops.push(this.claimTasks());
    return this;
  }

  /** Works until the process is asked to stop, by SIGINT or SIGTERM, or until `stop()`. */
  async run(): Promise<void> {
    await this.start();
    const stop = () => void this.stop();
    process.once('SIGINT', stop).once('SIGTERM', stop);
    await Promise.all(this.loops);
    process.off('SIGINT', stop).off('SIGTERM', stop);
  }

  /** Claims nothing more, lets running bodies end, and gives the runs back. */
  async stop(): Promise<void> {
    if (this.stopping) return;
    this.stopping = true;
    for (const run of this.runs.values()) run.stop();
    while (this.runs.size > 0 || this.tasks.size > 0) await this.room();
    await this.leave();
  }

  /** Ends at once, as if the process had died, except that the runs are due for others without delay. */
  async kill(): Promise<void> {
    this.stopping = true;
    this.dropAll();
    await this.leave();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  private async leave(): Promise<void> {
    this.stopped.abort(new Error('the worker has stopped'));
    await this.transport.call('/workers/release', { body: encode({ node: this.node }) }).catch(error => {
      this.log('warn', `the worker's runs are due when its lease ends: ${(error as Error).message}`);
    });
    await Promise.allSettled(this.loops);
  }

  private async join(): Promise<void> {
    this.node = idOf('node', uuid7());
    const serves = [
      ...this.options.workflows.map(workflow => `${workflow.name}@${workflow.version}`),
      ...Object.keys(this.options.queues).map(queue => `queue:${queue}`),
    ];
    const { name, lease } = this.options;
    await this.timed('/workers', { node: this.node, name, serves, leaseMs: lease });
  }

  private async beat(): Promise<void> {
    const { lease } = this.options;
    while (await this.pause(lease / 3)) {
      await this.joined;
      const { node } = this;
      const runs = [...this.runs.values()].slice(0, COMMITS).map(run => ({ run: run.id, fence: run.claim.fence, seen: run.seen }));
      const steps = [...this.tasks].slice(0, COMMITS).map(([run, { fence }]) => ({ run, fence }));
      try {
        const leased = await this.timed<{ news?: RunNews[]; stop?: { run: string }[] }>('/workers/heartbeat', { node, leaseMs: lease, runs, steps }, lease / 3);
        for (const news of leased.news ?? []) {
          const run = this.runs.get(news.run);
          if (news.taken === true) run?.drop();
          else run?.heard(news.arrived ?? 0);
        }
        for (const { run } of leased.stop ?? []) this.tasks.get(run)?.abort.abort();
      } catch (error) {
        await this.lost(error, node);
      }
    }
  }

  /**
   * After an error. A lease that has ended means a new node; so does a claim that may have taken place and was not answered,
   * because the node may own runs that no worker drives. Anything else is tried again.
   */
  private async lost(error: unknown, node: string, claimed = false): Promise<void> {
    if (this.stopped.signal.aborted || node !== this.node) return;
    const status = error instanceof SemelError ? error.status : undefined;
    const ended = status === 404 || status === 409;
    if (ended || (claimed && error instanceof SemelError && error.unsure)) {
      this.log('warn', ended
        ? 'the lease has ended: the runs belong to other workers, and this one joins anew'
        : `a claim was not answered, and the worker joins anew: ${(error as Error).message}`);
      this.dropAll();
      if (!ended) this.transport.call('/workers/release', { body: encode({ node }) }).catch(() => undefined);
      this.joined = this.join().catch(again => this.log('warn', (again as Error).message));
      await this.joined;
      if (ended) return;
    } else this.log('warn', (error as Error).message);
    await this.pause(PAUSE);
  }

  private dropAll(): void {
    for (const run of [...this.runs.values()]) run.drop();
    for (const task of this.tasks.values()) task.abort.abort();
    this.tasks.clear();
  }

  // Claims

  private async claimRuns(): Promise<void> {
    const workflows = this.options.workflows.map(({ name, version }) => ({ workflow: name, workflowVersion: version }));
    while (!this.stopping) {
      await this.joined;
      const { node } = this;
      const free = this.options.slots - this.runs.size;
      if (free <= 0) {
        await this.room();
        continue;
      }
      const path = '/workers/claim', call = { node, workflows, folded: true };
      try {
        if (!await this.look(path, call) || node !== this.node || this.stopping) continue;
        const claims = await this.claim<Claims>(path, { ...call, limit: Math.min(free, COMMITS) });
        if (node !== this.node) continue;
        for (const claimed of claims.runs) this.drive(claimed);
        for (const run of claims.leftOut ?? []) {
          const one = await this.claim<Claims>(path, { ...call, limit: 1, run });
          if (node !== this.node) break;
          for (const claimed of one.runs) this.drive(claimed);
        }
        if (claims.runs.length === 0) await this.pause(EMPTY);
      } catch (error) {
        await this.lost(error, node, true);
      }
    }
  }

  /** Waits until something is due; false if nothing is. It claims nothing, so that no answer is missed if the server is restarted meanwhile. */
  private async look(path: string, body: object): Promise<boolean> {
    const call: Call = { body: encode({ ...body, limit: 1, waitMs: WAIT, look: true }), timeout: WAIT + 10_000, signal: this.stopped.signal };
    const answer = await this.transport.patiently(path, call).catch(error => {
      // Whatever became of it, it has claimed nothing.
      if (error instanceof SemelError) error.unsure = false;
      throw error;
    });
    const { due, nextDue, now } = decode<{ due?: boolean; nextDue?: number | null; now?: number }>(answer.text);
    const isDue = due === true || (nextDue != null && nextDue <= now!);
    if (!isDue) await this.pause(EMPTY);
    return isDue;
  }

  /**
   * A claim under an id: if its answer is lost, the repetition gets the same runs. A server that does not know the id any more
   * answers it as a new claim; what the lost answer had is then driven by no worker, which is an error.
   */
  private async claim<T extends { repeated?: boolean }>(path: string, body: object): Promise<T> {
    const headers = { 'idempotency-key': uuidText(uuid7()) };
    const call: Call = { body: encode(body), headers, signal: this.stopped.signal };
    for (;;) {
      try {
        const answer = await this.transport.patiently(path, call, performance.now() + this.options.lease / 2);
        const claims = decode<T>(answer.text);
        if (answer.again !== true || claims.repeated === true) return claims;
        throw new SemelError({ status: 0, code: 'NO_ANSWER', detail: 'the server was restarted before it answered', unsure: true });
      } catch (error) {
        // A server that was not reached has claimed nothing: leases continue, and it is asked until it is back.
        if (!(error instanceof SemelError) || !error.retryable || error.unsure) throw error;
      }
    }
  }

  private drive(claimed: FoldedRun): void {
    const found = this.options.workflows.find(({ name, version }) => name === claimed.workflow && version === claimed.workflowVersion);
    if (found === undefined || this.stopping) return;
    this.runs.get(claimed.run)?.drop();
    const run = new Run(this, claimed);
    this.runs.set(claimed.run, run);
    const ctx = new Ctx(run, { branch: new Branch(), shielded: false }, '');
    run.begin(async () => found.code(ctx, await checked(found.input, claimed.input, 'the input')));
  }

  // What runs ask for

  earliest(): number {
    return Math.floor(this.clock.now + performance.now() - this.clock.received);
  }

  latest(): number {
    return Math.ceil(this.clock.now + performance.now() - this.clock.sent);
  }

  random(): number {
    return Math.random();
  }

  log(level: 'warn' | 'error', message: string): void {
    this.options.log(level, message);
  }

  forget(run: Run): void {
    if (this.runs.get(run.id) === run) this.runs.delete(run.id);
    this.freed();
  }

  /** Settles when a run or a task has left. */
  private room(): Promise<void> {
    return new Promise(resolve => this.waiting.push(resolve));
  }

  private freed(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  /** All runs in which something moved have a turn when no microtask is left. */
  schedule(run: Run): void {
    this.due.add(run);
    if (this.turning) return;
    this.turning = true;
    setImmediate(() => {
      this.turning = false;
      const due = [...this.due];
      this.due.clear();
      for (const one of due) this.turn(one);
      this.flush();
    });
  }

  /** A fault in one run does not touch the others. */
  private turn(run: Run): void {
    try {
      run.turn();
    } catch (fault) {
      this.log('error', `${run.id} is given up here: ${failOf(fault).message}`);
      run.drop();
    }
  }

  commit({ run, expected, seen, entries, drafts: placed }: Commit): Promise<CommitAnswer> {
    const drafts = placed.map(({ after, draft }) => `{"after":${after},"draft":${draft}}`);
    const parts = `"run":"${run}","node":"${this.node}","expected":${expected},"seen":${seen}`;
    const text = `{${parts},"entries":[${entries.join(',')}]${drafts.length > 0 ? `,"drafts":[${drafts.join(',')}]` : ''}}`;
    return new Promise(answer => {
      this.commits.push({ run, text, answer });
      if (!this.turning) setImmediate(() => this.flush());
    });
  }

  private flush(): void {
    while (this.requests < REQUESTS && this.commits.length > 0) {
      let count = 0, size = 0;
      while (count < Math.min(this.commits.length, COMMITS) && (count === 0 || size + this.commits[count]!.text.length <= REQUEST)) {
        size += this.commits[count++]!.text.length;
      }
      const batch = this.commits.splice(0, count);
      this.requests += 1;
      void this.send(batch).finally(() => {
        this.requests -= 1;
        this.flush();
      });
    }
  }

  private async send(batch: Queued[]): Promise<void> {
    const body = `{"commits":[${batch.map(({ text }) => text).join(',')}]}`;
    let answers: CommitAnswer[];
    try {
      const sent = performance.now();
      const answer = await this.transport.patiently('/workers/commit', { body, signal: this.stopped.signal });
      const told = decode<{ answers: CommitAnswer[]; now?: number }>(answer.text);
      answers = told.answers;
      if (told.now !== undefined) this.learn(told.now, sent);
    } catch (error) {
      // The server refuses the call as a whole: only the run that is at fault cannot go on here.
      if (batch.length > 1 && !this.stopped.signal.aborted) {
        for (const one of batch) await this.send([one]);
        return;
      }
      const refused: CommitAnswer = { error: { refused: (error as Error).message } };
      answers = batch.map(() => refused);
    }
    const again: Queued[] = [];
    batch.forEach((queued, i) => {
      const answer = answers[i] ?? { error: 'unknown' as const };
      if ('error' in answer && typeof answer.error === 'string') again.push(queued);
      else queued.answer(answer);
    });
    if (again.length > 0 && await this.pause(PAUSE)) this.commits.push(...again);
  }

  async inbox(run: string, from: number): Promise<Arrival[]> {
    const all: Arrival[] = [];
    for (;;) {
      const answer = await this.transport.patiently('/workers/inbox', { body: encode({ run, from, maxBytes: 8 * 1024 * 1024 }), signal: this.stopped.signal });
      const page = decode<Arrival[]>(answer.text);
      all.push(...page);
      if (page.length === 0 || answer.text.length < 4 * 1024 * 1024) return all;
      from = page.at(-1)!.number + 1;
    }
  }

  async once(call: object): Promise<unknown> {
    const answer = await this.transport.patiently('/workers/once', { body: encodeGiven(call), signal: this.stopped.signal });
    return decode(answer.text);
  }

  // Steps of queues

  private async claimTasks(): Promise<void> {
    const queues = Object.keys(this.options.queues);
    while (!this.stopping) {
      await this.joined;
      const { node } = this;
      const free = Math.min(this.options.slots - this.tasks.size, 100);
      if (free <= 0) {
        await this.room();
        continue;
      }
      const path = '/workers/steps/claim';
      try {
        if (!await this.look(path, { node, queues }) || node !== this.node || this.stopping) continue;
        const { steps } = await this.claim<{ steps: Assignment[]; repeated?: boolean }>(path, { node, queues, limit: free });
        for (const task of steps) if (node === this.node && !this.stopping) void this.execute(task);
        if (steps.length === 0) await this.pause(EMPTY);
      } catch (error) {
        await this.lost(error, node, true);
      }
    }
  }

  private async execute(task: Assignment): Promise<void> {
    const abort = new AbortController();
    this.tasks.set(task.run, { fence: task.fence, abort });
    const { node } = this;
    const report = { run: task.run, fence: task.fence };
    let path = '/workers/steps/complete', step: object;
    try {
      const { key, attempt, fence } = task;
      const value = await this.options.queues[task.queue]!(task.input, { key, attempt, fence, signal: abort.signal });
      step = { ...report, value: decode(encode(value)) };
    } catch (thrown) {
      const fail = failOf(thrown);
      path = '/workers/steps/fail';
      step = { ...report, ...viewOf(fail), ...(fail.retryAfterMs === undefined ? {} : { retryAfterMs: fail.retryAfterMs }) };
    }
    await this.transport.patiently(path, { body: encode({ node, steps: [step] }), signal: this.stopped.signal }).catch(error => {
      if (!this.stopped.signal.aborted) this.log('error', `the report of ${task.run} was refused: ${(error as Error).message}`);
    });
    if (this.tasks.get(task.run)?.abort === abort) this.tasks.delete(task.run);
    this.freed();
  }

  // Small things

  /** A call whose answer tells the store's time. */
  private async timed<T>(path: string, body: object, timeout = 30_000): Promise<T> {
    const sent = performance.now();
    const answer = await this.transport.call(path, { body: encode(body), timeout, signal: this.stopped.signal });
    checkProtocol(answer);
    const told = decode<T & { now: number }>(answer.text);
    this.clock = { now: told.now, sent, received: performance.now() };
    return told;
  }

  /** The store's time of a commit, if it says more than what is known: the answer came sooner, or the clock was set forward. */
  private learn(now: number, sent: number): void {
    const received = performance.now();
    if (received - sent < this.clock.received - this.clock.sent || now > this.latest()) this.clock = { now, sent, received };
  }

  /** Waits; false if the worker has stopped. */
  private pause(ms: number): Promise<boolean> {
    const { signal } = this.stopped;
    if (signal.aborted) return Promise.resolve(false);
    return new Promise(resolve => {
      const stop = () => {
        clearTimeout(timer);
        resolve(false);
      };
      const timer = setTimeout(() => {
        signal.removeEventListener('abort', stop);
        resolve(true);
      }, ms);
      signal.addEventListener('abort', stop, { once: true });
    });
  }
}

export type { Attempt };
