import { millis, type Duration } from './duration.js';
import { fatal, SemelError, type Problem } from './errors.js';
import { Transport, type Connection } from './http.js';
import { decode, encode } from './json.js';
import { uuid7, uuidText } from './keys.js';
import type { FailureView } from './wire.js';
import { answered, type StartHandler, type WebOptions } from './web.js';
import { Worker, type WorkerOptions } from './worker.js';
import { checked, type Workflow } from './workflow.js';

/** What a start does if its key is in use. */
export type OnConflict = 'attach' | 'strict' | 'reject' | 'unique-while-open' | 'retry-failed' | 'supersede';

/** What a start turned out to be. */
export type Verdict = 'created' | 'attached' | 'replayed' | 'restarted' | 'superseded' | 'rejected';

export type Status = 'PENDING' | 'RUNNING' | 'WAITING' | 'PAUSED' | 'COMPLETED' | 'FAILED' | 'CANCELLED' | 'TIMED_OUT';

/** A run, as the server shows it. */
export interface RunView {
  id: string;
  workflow: string;
  workflowVersion: string;
  status: Status;
  version: number;
  key: string;
  createdAt: string;
  endedAt?: string;
  result?: unknown;
  error?: FailureView;
  cancelReason?: string;
  pauseReason?: string;
  purged?: boolean;
  /** True if the run waits for a worker that serves its version. */
  unserved?: boolean;
}

export interface StartOptions {
  /** Idempotency key: the same key, the same run. One is drawn if absent. */
  key?: string;
  /** Scope in which the key is unique; the workspace by default. */
  scope?: 'workspace' | 'workflow' | 'workflow-version';
  onConflict?: OnConflict;
  /** Period before which the run does not begin. */
  delay?: Duration;
  /** Period after which the run ends as TIMED_OUT. */
  timeout?: Duration;
  /** How long history and key are kept after the end. */
  retention?: { history?: Duration; key?: Duration };
  /** Delivered in the same transaction: to the owner of the token, or to the started run. */
  deliver?: { token: string; payload: unknown; id?: string };
  /** JSON pointers into the input that are ignored when two inputs are compared. */
  exclude?: string[];
}

export interface ListOptions {
  status?: Status;
  workflow?: string;
  key?: string;
  since?: Date;
}

/** A run that ended otherwise than by a result. */
export class RunFailed extends Error {
  override readonly name = 'RunFailed';
  constructor(readonly run: RunView) {
    super(`${run.id} has ended as ${run.status}${run.error ? `: ${run.error.message}` : run.cancelReason ? `: ${run.cancelReason}` : ''}`);
  }
}

/** A run on the server. */
export class RunHandle<Out = unknown> {
  constructor(private readonly semel: Semel, /** Id of the run. */ readonly id: string) {}

  /** The run as it is now. */
  async get(): Promise<RunView> {
    return this.semel.read<RunView>(`/workflow-runs/${this.id}`);
  }

  /** The result, when the run has ended. Any other end is thrown as `RunFailed`; a time that is over as `SemelError`. */
  async result(options: { timeout?: Duration } = {}): Promise<Out> {
    const until = performance.now() + (options.timeout === undefined ? Number.POSITIVE_INFINITY : millis(options.timeout));
    for (;;) {
      const left = until - performance.now();
      const wait = Math.max(0, Math.min(30, Math.ceil(left / 1000)));
      const run = await this.semel.read<RunView>(`/workflow-runs/${this.id}?wait=${wait}`, (wait + 30) * 1000);
      if (run.status === 'COMPLETED' && run.purged !== true) return run.result as Out;
      if (run.endedAt !== undefined) throw new RunFailed(run);
      if (performance.now() >= until) {
        throw new SemelError({ status: 0, code: 'TIMEOUT', detail: `${this.id} is ${run.status}: it has not ended in time` });
      }
    }
  }

  /** Ends the run. With `graceful`, its code is asked to end and may clean up. */
  async cancel(reason = '', options: { graceful?: boolean } = {}): Promise<RunView> {
    return this.control('cancel', { reason, ...options });
  }

  async pause(): Promise<RunView> {
    return this.control('pause');
  }

  async resume(): Promise<RunView> {
    return this.control('resume');
  }

  /** Tries a failed run again from where it failed, with the same effect keys. */
  async retry(): Promise<RunView> {
    return this.control('retry');
  }

  /** Starts a run again that has failed or timed out, where it failed or from the beginning. Its effects keep their keys. */
  async restart(options: { from?: 'failure' | 'beginning' } = {}): Promise<RunView> {
    return this.control('restart', options);
  }

  /** A new run with the first `at` entries of this one, or all of them. It has the same effect keys, unless they are to be fresh. */
  async fork(options: { at?: number; key?: string; freshKeys?: boolean } = {}): Promise<RunHandle<Out>> {
    return new RunHandle<Out>(this.semel, (await this.control('fork', options)).id);
  }

  /** Settles a step in doubt: it happened with this value, it did not, or the run gives up. */
  async resolve(step: string, resolution: { happened: unknown } | 'did-not-happen' | { giveUp: string }): Promise<void> {
    const body = resolution === 'did-not-happen'
      ? { resolution: 'did-not-happen' }
      : 'happened' in resolution ? { resolution: 'happened', value: resolution.happened } : { resolution: 'give-up', message: resolution.giveUp };
    await this.semel.write(`/workflow-runs/${this.id}/steps/${encodeURIComponent(step)}/resolve`, body);
  }

  private async control(action: string, body: object = {}): Promise<RunView> {
    const answer = await this.semel.write<{ run: RunView }>(`/workflow-runs/${this.id}/${action}`, body);
    return answer.run;
  }
}

/** A run that was just started, or found under its key. */
export class StartedRun<Out = unknown> extends RunHandle<Out> {
  constructor(semel: Semel, /** What the start turned out to be. */ readonly verdict: Verdict, /** Whether it is new. */ readonly created: boolean, /** The run at that moment. */ readonly run: RunView) {
    super(semel, run.id);
  }
}

/** A client of a Semel server. Every call is repeated after a lost answer, under the same key. */
export class Semel {
  readonly transport: Transport;
  /** How long a call is repeated while the server cannot answer, in milliseconds. */
  private readonly patience: number;

  constructor(options: Connection & { patience?: Duration } = {}) {
    this.transport = new Transport(options);
    this.patience = millis(options.patience ?? '30s');
  }

  /** Starts a run, or finds the one that has the key. */
  async start<In, Out>(workflow: Workflow<In, Out> | string | { definition: string }, input: NoInfer<In>, options: StartOptions = {}): Promise<StartedRun<Out>> {
    const { key } = options;
    const body = await startBody(workflow, input, options);
    // A header has only ASCII characters; a key may have others.
    if (key !== undefined && !isAscii(key)) body['idempotencyKey'] = key;
    const { verdict, created, run } = await this.write<StartAnswer>('/workflow-runs', body, key);
    return new StartedRun<Out>(this, verdict, created, run);
  }

  /**
   * Starts up to 1,000 runs by one call. Each start is decided by itself: a refused one is a `SemelError` at its place. A start
   * without a key gets one of the call, so that the call can be repeated under the same `id`.
   */
  async startMany<In, Out>(workflow: Workflow<In, Out> | string | { definition: string }, starts: ({ input: NoInfer<In> } & StartOptions)[], options: { id?: string } = {}): Promise<(StartedRun<Out> | SemelError)[]> {
    const runs = await Promise.all(starts.map(async ({ input, key, ...rest }) => {
      const body = await startBody(workflow, input, rest);
      if (key !== undefined) body['idempotencyKey'] = key;
      return body;
    }));
    const { results } = await this.write<{ results: { start?: StartAnswer; problem?: Problem }[] }>('/workflow-runs/batch', { runs }, options.id);
    return results.map(({ start, problem }) => start !== undefined
      ? new StartedRun<Out>(this, start.verdict, start.created, start.run)
      : new SemelError(problem!));
  }

  /** A run by its id. */
  run<Out = unknown>(id: string): RunHandle<Out> {
    return new RunHandle<Out>(this, id);
  }

  /** Puts a payload into the hook that has this token. The same id twice is consumed once. */
  async deliver(token: string, payload: unknown, options: { id?: string } = {}): Promise<{ run: string; arrival: number; absorbed: boolean }> {
    return this.write(`/hooks/${encodeURIComponent(token)}`, payload, options.id);
  }

  /** What owns a token, if anything does. */
  async hook(token: string): Promise<{ run: string } | undefined> {
    try {
      return await this.read(`/hooks/${encodeURIComponent(token)}`);
    } catch (error) {
      if (error instanceof SemelError && error.status === 404) return undefined;
      throw error;
    }
  }

  /** What a key points at. */
  async key(key: string, scope = '*'): Promise<{ run: RunView; duplicates: unknown } | undefined> {
    try {
      return await this.read(`/keys/${encodeURIComponent(key)}?scope=${encodeURIComponent(scope)}`);
    } catch (error) {
      if (error instanceof SemelError && error.status === 404) return undefined;
      throw error;
    }
  }

  /** Frees a key: its run goes on, and the next start with the key makes a new run. Gives the run that had it. */
  async releaseKey(key: string, scope = '*'): Promise<RunView> {
    const answer = await this.write<{ run: RunView }>(`/keys/${encodeURIComponent(key)}/release?scope=${encodeURIComponent(scope)}`, {});
    return answer.run;
  }

  /** Runs, newest first, page by page. */
  async *list(options: ListOptions = {}): AsyncIterableIterator<RunView> {
    const query = new URLSearchParams({ limit: '100' });
    for (const [name, value] of Object.entries(options)) if (value !== undefined) query.set(name, value instanceof Date ? value.toISOString() : value);
    for (;;) {
      const page = await this.read<{ runs: RunView[]; next?: string }>(`/workflow-runs?${query}`);
      yield* page.runs;
      if (page.next === undefined || page.next === null) return;
      query.set('cursor', page.next);
    }
  }

  /** A worker that executes workflows and steps of queues. `await worker.run()` ends when the process is asked to stop. */
  worker(options: WorkerOptions): Worker {
    return new Worker(this.transport, options);
  }

  /** A handler for Express, behind `express.json()`: it starts the workflow with the body under the request's `Idempotency-Key`. */
  express<In, Out>(workflow: Workflow<In, Out>, options: WebOptions<In> = {}): StartHandler['express'] {
    return async (request, response) => {
      const { status, headers, body } = await answered(this, workflow, request.get('idempotency-key'), async () => request.body, options);
      response.status(status).set(headers).json(body);
    };
  }

  /** The same for Hono. */
  hono<In, Out>(workflow: Workflow<In, Out>, options: WebOptions<In> = {}): StartHandler['hono'] {
    return async context => (await this.next(workflow, options)(context.req.raw));
  }

  /** The same for a route of Next, and for everything else that answers a `Request` by a `Response`. */
  next<In, Out>(workflow: Workflow<In, Out>, options: WebOptions<In> = {}): StartHandler['next'] {
    return async request => {
      const key = request.headers.get('idempotency-key') ?? undefined;
      const { status, headers, body } = await answered(this, workflow, key, () => request.json(), options);
      return new Response(encode(body), { status, headers: { 'content-type': 'application/json', ...headers } });
    };
  }

  /** Ends idle connections. */
  close(): void {
    this.transport.close();
  }

  /** @internal */
  async read<T>(path: string, timeout = 30_000): Promise<T> {
    const answer = await this.transport.patiently(path, { method: 'GET', timeout }, performance.now() + this.patience);
    return decode<T>(answer.text);
  }

  /** @internal A call that changes something: under a key, so that it can be repeated. */
  async write<T>(path: string, body: unknown, key = uuidText(uuid7())): Promise<T> {
    if (key === '') throw fatal('the key is empty');
    const headers: { [name: string]: string } = {};
    if (isAscii(key)) headers['idempotency-key'] = `"${key.replace(/[\\"]/g, '\\$&')}"`;
    else if (path !== '/workflow-runs') throw fatal(`${JSON.stringify(key)} has other characters than those of ASCII: give another id`);
    const call = { body: encode(body), headers };
    const answer = await this.transport.patiently(path, call, performance.now() + this.patience);
    return decode<T>(answer.text);
  }
}

interface StartAnswer {
  run: RunView;
  created: boolean;
  verdict: Verdict;
}

/** A start as it travels, without its key. */
async function startBody(workflow: Workflow<any, any> | string | { definition: string }, input: unknown, options: StartOptions): Promise<{ [name: string]: unknown }> {
  const { key: _, delay, timeout, retention, ...rest } = options;
  const body: { [name: string]: unknown } = { ...rest, input: input ?? null };
  if (typeof workflow === 'string') body['workflow'] = workflow;
  else if ('definition' in workflow) body['definitionId'] = workflow.definition;
  else {
    await checked(workflow.input, input, 'the input');
    Object.assign(body, { workflow: workflow.name, workflowVersion: workflow.version });
  }
  if (delay !== undefined) body['delay'] = period(delay);
  if (timeout !== undefined) body['timeout'] = period(timeout);
  if (retention !== undefined) body['retention'] = Object.fromEntries(Object.entries(retention).map(([name, time]) => [name, period(time)]));
  return body;
}

function isAscii(text: string): boolean {
  return /^[\x20-\x7e]*$/.test(text);
}

function period(duration: Duration): string {
  return typeof duration === 'number' ? `${millis(duration)}ms` : duration;
}
