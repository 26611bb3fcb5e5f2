import { Fail, failOf, fatal, viewOf } from './errors.js';
import { millis, type Duration } from './duration.js';
import { decode, encode } from './json.js';
import { effectKey, effectUuid, idOf, isName, pathKey, uuid7, uuidText } from './keys.js';
import { next, wireOf, type Retry } from './retry.js';
import { Branch, failedEntry, never, onceVisit, pathOf, placeOf, startedEntry, type Run, type Stand, type Started } from './run.js';
import { performTx, type TxSource } from './tx.js';
import type { Class, FailureView, HookRecord, Outcome, Record_ } from './wire.js';
import { checked, type Schema, type Workflow } from './workflow.js';

/** How a step is tried, and what is promised about its effect. */
export interface StepOptions<T> {
  /** Tells several steps of one name apart: `pack[ink]`, `pack[pens]`. */
  key?: string | number;
  /** Counts the visits of one name, in an order that is the same in every replay: `poll`, `poll#2`. */
  indexed?: boolean;
  /** How it is tried again. Three attempts by default. */
  retry?: Retry;
  /** Maximum time of an attempt. */
  timeout?: Duration;
  /** The effect is never repeated. If a crash hides whether it took place, the step is in doubt until a person decides. */
  atMostOnce?: boolean;
  /** Asks the other side what became of an attempt with a hidden end: its result, or `undefined` if it had no effect. */
  reconcile?: (attempt: Attempt) => Promise<T | undefined> | T | undefined;
}

/** One attempt at a step, as its body sees it. */
export class Attempt {
  /** Aborted when the step should stop: its time is over, the run is cancelled, or it lost a race. */
  readonly signal: AbortSignal;

  constructor(private readonly run: Run, private readonly visit: string, /** Number of the attempt, from 1. */ readonly number: number, signal: AbortSignal) {
    this.signal = signal;
  }

  /** The effect key: the same on every attempt. Hand it to a provider as its idempotency key. */
  get key(): string {
    return this.keyFor('');
  }

  /** The effect key as a UUID. */
  get uuid(): string {
    return effectUuid(this.effect(''));
  }

  /** Version of the claim under which this runs. It only grows: a system that compares fences can refuse a late owner. */
  get fence(): number {
    return this.run.claim.fence;
  }

  /** Path of the step. */
  get path(): string {
    return this.visit;
  }

  get runId(): string {
    return this.run.id;
  }

  /** The key of one of several effects of the step. */
  keyFor(label: string): string {
    return effectKey(this.effect(label));
  }

  private effect(label: string) {
    const [path, tick] = splitVisit(this.visit);
    return { workspace: this.run.claim.workspace, lineage: this.run.claim.lineage, path, tick, label };
  }
}

/** Where a `runOnce` value is shared: in the run, among all runs that ever had its key, or in the workspace. */
export interface OnceOptions {
  scope?: 'run' | 'key' | 'workspace';
  /** How long a shared value is remembered; for ever by default. */
  ttl?: Duration;
  /** Maximum time of the body. */
  timeout?: Duration;
}

/** How a child is named and told apart from others. */
export interface ChildOptions {
  /** Name of the child's place in this run; the workflow's name by default. */
  name?: string;
  key?: string | number;
  indexed?: boolean;
}

/** How a step for a queue is told apart from others and tried. */
export type RemoteOptions = Pick<StepOptions<unknown>, 'key' | 'indexed' | 'retry' | 'timeout'>;

type Branches = { [name: string]: (ctx: Ctx) => unknown };
type Won<B extends Branches> = { [N in keyof B & string]: { winner: N; value: Awaited<ReturnType<B[N]>> } }[keyof B & string];

/** The workflow's way to everything that is recorded. */
export class Ctx {
  constructor(private readonly run: Run, private readonly stand: Stand, private readonly at: string) {}

  get runId(): string {
    return this.run.id;
  }

  /** Idempotency key of the run. */
  get key(): string {
    return this.run.claim.key;
  }

  get workflow(): string {
    return this.run.claim.workflow;
  }

  get workflowVersion(): string {
    return this.run.claim.workflowVersion;
  }

  get workspace(): string {
    return this.run.claim.workspace;
  }

  /** Time of the run's start. */
  get started(): Date {
    return new Date(this.run.claim.created);
  }

  /** Whether recorded results are given, and nothing new has begun. For logs. */
  get isReplaying(): boolean {
    return this.run.replaying;
  }

  /** Names in here are below this one: `left/pack`. */
  scope(name: string, key?: string | number): Ctx {
    return new Ctx(this.run, this.stand, this.path(name, key));
  }

  /** What is asked for here is not stopped by a cancel: to clean up after one. */
  cleanup(): Ctx {
    return new Ctx(this.run, { ...this.stand, shielded: true }, this.at);
  }

  /** An effect, tried until it has an outcome. After a crash the recorded outcome is given, and the body is not called. */
  async step<T>(name: string, body: (attempt: Attempt) => Promise<T> | T, options: StepOptions<T> = {}): Promise<T> {
    const visit = this.visit(name, options.key, options.indexed);
    const of: Class = options.reconcile !== undefined ? 'reconcile' : options.atMostOnce === true ? 'at-most-once' : 'keyed';
    const step = new StepDriver<T>(this.run, this.stand, visit, of, options, body);
    return step.perform();
  }

  /** The user's rows and the step's result in one commit of the user's database. The body's value is the result. */
  async tx<Db, T>(name: string, source: TxSource<Db>, body: (db: Db, attempt: Attempt) => Promise<T> | T, options: Pick<StepOptions<T>, 'key' | 'indexed' | 'retry' | 'timeout'> = {}): Promise<T> {
    const visit = this.visit(name, options.key, options.indexed);
    const step = new StepDriver<T>(this.run, this.stand, visit, 'tx', options, () => never());
    return step.perform((driver, number) => performTx(driver, source, number, body));
  }

  /** Records that a step is not needed. */
  async skip(name: string, reason: string): Promise<void> {
    const visit = this.visit(name);
    const record = this.run.records.get(visit);
    if (record === 'skipped') return;
    if (record !== undefined) {
      if (!this.run.carried.has(visit)) this.run.diverge(`\`${visit}\` is skipped in the code, but not in the ledger`);
      return;
    }
    await this.run.live(this.stand, visit);
    this.run.add('stepSkipped', { step: visit, reason });
  }

  /** Waits durably: over restarts, and in no memory. */
  async sleep(name: string, time: Duration): Promise<void> {
    await this.timer(name, () => this.run.host.latest() + millis(time));
  }

  /** Waits until a time. */
  async sleepUntil(name: string, time: Date): Promise<void> {
    await this.timer(name, () => time.getTime());
  }

  private async timer(name: string, at: () => number): Promise<void> {
    const visit = this.visit(name);
    const record = this.run.found(visit, 'timer', 'a timer')?.timer as { at: number; fired: boolean } | undefined;
    if (record?.fired === true) return;
    const due = await this.setTimer(visit, at);
    await this.run.wait(this.stand, visit, due, now => fire(this.run, visit, due, now));
  }

  private async setTimer(visit: string, at: () => number): Promise<number> {
    const set = this.run.found(visit, 'timer', 'a timer')?.timer as { at: number } | undefined;
    if (set !== undefined) return set.at;
    this.run.checkCancelled(this.stand.shielded);
    await this.run.live(this.stand, visit);
    this.run.checkCancelled(this.stand.shielded);
    const due = at();
    this.run.add('timerSet', { timer: visit, at: due });
    return due;
  }

  /** Opens a place where the run waits for input, under a token that is unique in the workspace while it is open. */
  hook<T = unknown>(token: string, schema?: Schema<T>): Hook<T> {
    const visit = this.run.visit(this.path('@hook', pathKey(token), true), true);
    this.run.openHook(this.stand, visit, token);
    return new Hook<T>(this.run, this.stand, visit, token, schema, (at, due) => this.setTimer(at, due));
  }

  /** Starts another run, or finds it again. It is there when this returns; `result()` waits for its end. */
  async child<In, Out>(workflow: Workflow<In, Out> | { name: string; version?: string }, input: NoInfer<In>, options: ChildOptions = {}): Promise<Child<Out>> {
    const visit = this.visit(options.name ?? workflow.name, options.key, options.indexed);
    return this.begin<Out>(visit, workflow.name, workflow.version ?? '1', input);
  }

  private async begin<Out>(visit: string, workflow: string, workflowVersion: string, input: unknown): Promise<Child<Out>> {
    for (;;) {
      const record = this.run.found(visit, 'child', 'a child')?.child as { run?: string } | undefined;
      if (record?.run !== undefined) return new Child<Out>(this.run, this.stand, visit, record.run);
      this.run.checkCancelled(this.stand.shielded);
      await this.run.live(this.stand, visit);
      this.run.checkCancelled(this.stand.shielded);
      const child = { child: visit, run: idOf('run', uuid7(this.run.host.latest())) };
      if (record === undefined) {
        this.run.draft('startChild', { ...child, workflow, workflowVersion, input: input ?? null });
      }
      await this.run.written(this.stand);
    }
  }

  /**
   * A step that is done elsewhere, by a worker that takes it from a queue: its `queues` option, in any language. `T` is the type
   * of what comes back.
   */
  async remote<T = unknown>(name: string, queue: string, input: unknown, options: RemoteOptions = {}): Promise<T> {
    const { key, indexed, retry, timeout } = options;
    const visit = this.visit(name, key, indexed);
    const step = { step: visit, input: input ?? null, retry: wireOf(retry ?? {}), ...(timeout === undefined ? {} : { timeoutMs: millis(timeout) }) };
    return (await this.begin<T>(visit, `queue:${queue}`, '1', step)).result();
  }

  /** One value for all calls with this label: of the run, or with a scope, of several runs. */
  async runOnce<T>(label: string, body: () => Promise<T> | T, options: OnceOptions = {}): Promise<T> {
    return runOnce(this.run, this.stand, label, body, options);
  }

  /**
   * The first of several branches. Its name is recorded; the others go on with nothing new. Each has a scope of its own:
   * ask for everything by the `ctx` of the branch.
   */
  async race<B extends Branches>(name: string, branches: B): Promise<Won<B>> {
    const visit = this.visit(name);
    const names = Object.keys(branches);
    if (names.length === 0) throw fatal(`the race ${visit} has no branches`);
    const recorded = (this.run.found(visit, 'value', 'a race') as { value: unknown } | undefined)?.value as string | undefined;
    if (recorded !== undefined && !names.includes(recorded)) {
      this.run.diverge(`\`${visit}\` was won by \`${recorded}\`, which the code does not have`);
      return never();
    }
    const runners = names.map(own => {
      const branch = new Branch(this.stand.branch);
      // A loser is given what it has recorded, and nothing new.
      branch.lost = recorded !== undefined && own !== recorded;
      const ctx = new Ctx(this.run, { ...this.stand, branch }, this.path(name)).scope(own);
      const settled = Promise.resolve(ctx).then(branches[own]).then(
        value => ({ own, value }),
        (thrown: unknown) => ({ own, fail: failOf(thrown) }),
      );
      return { own, branch, settled };
    });
    const won = await Promise.race(runners.filter(runner => !runner.branch.lost).map(runner => runner.settled));
    this.run.lose(runners.filter(runner => runner.own !== won.own).map(runner => runner.branch));
    if (recorded === undefined) {
      await this.run.live(this.stand, visit);
      const failed = 'fail' in won ? won.fail.at : undefined;
      this.run.add('recorded', failed === undefined ? { at: visit, value: won.own } : { at: visit, value: won.own, failed });
    }
    if ('fail' in won) throw won.fail;
    return { winner: won.own, value: won.value } as Won<B>;
  }

  /**
   * All branches, side by side, each in a scope of its name. If some fail, the others are waited for first, because an effect
   * is not abandoned half-way; then the first failure in the order of the code is thrown.
   */
  async all<B extends Branches>(branches: B): Promise<{ [N in keyof B]: Awaited<ReturnType<B[N]>> }> {
    const names = Object.keys(branches);
    const ended = await Promise.allSettled(names.map(async name => branches[name]!(this.scope(name))));
    const failed = ended.find(one => one.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    const values = ended.map((one, i) => [names[i], (one as PromiseFulfilledResult<unknown>).value]);
    return Object.fromEntries(values);
  }

  /** The time, recorded. */
  async now(name: string): Promise<Date> {
    return new Date(await this.recorded('@now', name, () => this.run.host.latest()));
  }

  /** A random number from 0 up to 1, recorded. */
  async random(name: string): Promise<number> {
    return this.recorded('@random', name, () => this.run.host.random());
  }

  /** A fresh UUID, recorded. */
  async uuid(name: string): Promise<string> {
    return this.recorded('@uuid', name, () => uuidText(uuid7(this.run.host.latest())));
  }

  /** A value that must be the same in every replay. */
  async record<T>(name: string, value: T): Promise<T> {
    return this.recordedAt(this.visit(name), () => value);
  }

  /** Whether this run follows a change of the code: true for runs that get here for the first time. */
  async patched(name: string): Promise<boolean> {
    this.run.refuseInside(`patched ${name}`);
    const visit = this.path('@patch', pathKey(name), true);
    const known = this.run.records.get(visit);
    if (typeof known === 'object' && 'value' in known) return known.value as boolean;
    const behind = this.run.replaying;
    await Promise.resolve();
    if (behind) {
      this.run.defer(this.stand, () => this.run.records.has(visit) || this.run.add('recorded', { at: visit, value: false }));
      return false;
    }
    this.run.visitAgain(visit);
    this.run.add('recorded', { at: visit, value: true });
    return true;
  }

  private recorded<T>(kind: string, name: string, make: () => T): Promise<T> {
    return this.recordedAt(this.run.visit(this.path(kind, name, true)), make);
  }

  private async recordedAt<T>(visit: string, make: () => T): Promise<T> {
    const record = this.run.found(visit, 'value', 'a recorded value');
    if (record !== undefined) return record.value as T;
    await this.run.live(this.stand, visit);
    const value = decode<T>(encode(make()));
    this.run.add('recorded', { at: visit, value });
    return value;
  }

  private visit(name: string, key?: string | number, indexed?: boolean): string {
    return this.run.visit(this.path(name, key), indexed);
  }

  private path(name: string, key?: string | number, own = false): string {
    const parts = key === undefined ? [name] : [name, String(key)];
    for (const part of parts) {
      if (!isName(part)) throw fatal(`${JSON.stringify(part)} is no name: give 1 to 200 characters, none of / [ ] # and no control characters`);
    }
    if (name.startsWith('@') && !own) throw fatal(`"${name}" begins with @, which is for Semel's own names; choose another`);
    return pathOf(this.at, name, key === undefined ? undefined : String(key));
  }
}

function fire(run: Run, timer: string, due: number, now: number): { got: undefined } | undefined {
  if (now < due) return undefined;
  run.add('timerFired', { timer });
  return { got: undefined };
}

/** A visit as path and number. */
export function splitVisit(visit: string): [string, number] {
  const [, path, tick] = /^(.*?)(?:#(\d+))?$/s.exec(visit)!;
  return [path!, Number(tick ?? 1)];
}

/** Whether the run gets on in a step after an attempt. */
type Tried = 'again' | 'settled';

/** One step in execution. */
export class StepDriver<T> {
  constructor(
    readonly run: Run,
    readonly stand: Stand,
    readonly visit: string,
    private readonly of: Class,
    readonly options: StepOptions<T>,
    private readonly body: (attempt: Attempt) => Promise<T> | T,
  ) {}

  /** Tries until there is an outcome. `once` makes an attempt of its own kind. */
  async perform(once: (driver: this, number: number) => Promise<void> = (_, number) => this.tryOnce(number)): Promise<T> {
    for (;;) {
      const record = this.run.records.get(this.visit);
      if (record === undefined) {
        await this.attempt(1, this.stand, once);
        continue;
      }
      if (record === 'skipped') return this.unlike('was skipped, but is a step in the code');
      if ('completed' in record) return record.completed as T;
      if ('failed' in record) throw Fail.recorded(this.visit, record.failed);
      if ('inDoubt' in record) return never();
      if ('retrying' in record) {
        const { attempt, at } = record.retrying;
        await this.run.wait(this.stand, this.visit, at, now => (now >= at ? { got: undefined } : undefined));
        await this.attempt(attempt + 1, this.stand, once);
      } else if ('cleared' in record) {
        await this.attempt(record.cleared.attempt + 1, this.stand, once);
      } else if ('started' in record) {
        const { attempt, class: of } = record.started;
        if (await this.findOut(attempt, of) === 'again') await this.attempt(attempt + 1, { ...this.stand, shielded: true }, once);
      } else return this.unlike('is a step in the code, but not in the ledger');
    }
  }

  private unlike(why: string): Promise<never> {
    this.run.diverge(`\`${this.visit}\` ${why}`);
    return never();
  }

  private async attempt(number: number, stand: Stand, once: (driver: this, number: number) => Promise<void>): Promise<void> {
    const driver = stand === this.stand ? this : this.shielded();
    await once(driver as this, number);
  }

  private shielded(): StepDriver<T> {
    return new StepDriver(this.run, { ...this.stand, shielded: true }, this.visit, this.of, this.options, this.body);
  }

  /** What became of an attempt whose end a crash has hidden. */
  private async findOut(number: number, of: Class): Promise<Tried> {
    const stand = { ...this.stand, shielded: true };
    const body = await this.run.effect(stand, this.visit);
    if (of === 'keyed' || of === 'tx') {
      this.run.over(body);
      return 'again';
    }
    if (of === 'at-most-once') {
      if (this.run.over(body)) this.doubt('a crash has hidden its end, or it was given up');
      return 'settled';
    }
    const found = await this.ask(number, body);
    if (!this.run.over(body)) return never();
    return found === 'nothing' ? 'again' : 'settled';
  }

  private async tryOnce(number: number): Promise<void> {
    const { run, visit } = this;
    const keyed = this.of === 'keyed';
    const body = await run.effect(this.stand, visit, keyed ? undefined : { attempt: number, class: this.of });
    const began = run.host.earliest();
    await run.host.probe?.(run.id, `before the body of ${visit}`);
    let result: { text: string } | { fail: Fail };
    try {
      const attempt = new Attempt(run, visit, number, body.abort.signal);
      const value = await run.call(body, this.timeout, () => this.body(attempt));
      result = this.kept(value, keyed);
    } catch (thrown) {
      result = { fail: failOf(thrown) };
    }
    await run.host.probe?.(run.id, `after the body of ${visit}`);
    if ('fail' in result && this.of === 'reconcile' && result.fail.retryAfterMs === undefined) {
      const { fail } = result;
      const found = await this.ask(number, body);
      if (!run.over(body)) return never();
      if (found === 'nothing') this.failed(number, new Fail(absent(fail.kind), fail.message, { data: fail.data, cause: fail }));
      return;
    }
    if (!run.over(body)) return never();
    this.finish(number, keyed ? { attempt: number, class: this.of, at: began } : undefined, result);
  }

  private kept(value: T, keyed: boolean): { text: string } | { fail: Fail } {
    try {
      return { text: encode(value) };
    } catch (unkept) {
      const why = failOf(unkept).message;
      return { fail: keyed ? fatal(why) : new Fail('uncertain', `it took place, but its result cannot be kept: ${why}`) };
    }
  }

  get timeout(): number | undefined {
    return this.options.timeout === undefined ? undefined : millis(this.options.timeout);
  }

  /** Records the end of an attempt. */
  finish(number: number, started: Started | undefined, result: { text: string } | { fail: Fail }): void {
    if ('text' in result) return this.run.complete(this.visit, started, result.text);
    if (started !== undefined) this.run.add('stepStarted', startedEntry(this.visit, started));
    this.failed(number, result.fail);
  }

  private failed(number: number, fail: Fail): void {
    const certain = fail.kind === 'fatal' || fail.retryAfterMs !== undefined;
    const decided = this.of === 'at-most-once' && !certain ? 'doubt' : next(this.options.retry ?? {}, number, fail.kind, this.run.host.random());
    if (decided === 'doubt') return this.doubt(fail.message);
    const retryAt = decided === 'fail' ? undefined : this.run.host.latest() + (fail.retryAfterMs ?? decided);
    if (retryAt !== undefined) this.run.host.log('warn', `attempt ${number} at ${this.visit} of ${this.run.id} has failed and is tried again: ${fail.message}`);
    this.run.add('stepFailed', failedEntry(this.visit, number, viewOf(fail), retryAt));
  }

  private doubt(reason: string): void {
    this.run.host.log('warn', `it is unknown whether ${this.visit} of ${this.run.id} took place; an operator has to decide`);
    this.run.add('stepInDoubt', { step: this.visit, reason });
  }

  /** Asks the other side about an attempt. */
  private async ask(number: number, body: Parameters<Run['over']>[0]): Promise<'something' | 'nothing'> {
    const { reconcile } = this.options;
    if (reconcile === undefined) {
      this.doubt('its end is hidden, and the code no longer says whom to ask');
      return 'something';
    }
    try {
      const attempt = new Attempt(this.run, this.visit, number, body.abort.signal);
      const found = await this.run.call(body, this.timeout, () => reconcile(attempt));
      if (found === undefined || found === null) return 'nothing';
      if (!body.stand.branch.isLost && !this.run.isGone) this.run.complete(this.visit, undefined, encode(found));
    } catch (unknown) {
      if (!this.run.isGone) this.doubt(`its end is hidden, and the look-up failed: ${failOf(unknown).message}`);
    }
    return 'something';
  }
}

/** The kind of a failure after a look-up has said that the effect did not take place. */
function absent(kind: Fail['kind']): Fail['kind'] {
  return kind === 'fatal' || kind === 'cancelled' ? kind : 'retryable';
}

/** A place where a run waits for input. */
export class Hook<T> implements AsyncDisposable {
  private given = 0;

  constructor(
    private readonly run: Run,
    private readonly stand: Stand,
    private readonly visit: string,
    /** Its public address. */
    readonly token: string,
    private readonly schema: Schema<T> | undefined,
    private readonly setTimer: (visit: string, at: () => number) => Promise<number>,
  ) {}

  /** The run that owns the token, if it is another one. */
  async conflict(): Promise<{ runId: string } | undefined> {
    for (;;) {
      const hook = this.run.hookAt(this.visit);
      if (hook?.state === 'conflicted') return { runId: hook.owner! };
      if (hook?.state === 'open' || hook?.state === 'closed') return undefined;
      await this.run.live(this.stand, this.visit);
      await this.run.written(this.stand);
      if (this.run.hookAt(this.visit)?.state === undefined) return never();
    }
  }

  /** The next payload. */
  async recv(): Promise<T> {
    await this.owned();
    const early = this.recorded();
    if (early !== undefined) return this.read(early.payload);
    await this.reopen();
    const got = await this.run.wait(this.stand, this.visit, undefined, () => this.take());
    return this.read(got.payload);
  }

  /** The next payload, or `undefined` if none comes in time. */
  async recvFor(time: Duration): Promise<T | undefined> {
    await this.owned();
    const [path, tick] = splitVisit(this.visit);
    const timer = this.run.visit(pathOf(tick === 1 ? path : `${path}/@${tick}`, 'timeout'), true);
    const set = this.run.found(timer, 'timer', 'a timer')?.timer as { at: number; fired: boolean } | undefined;
    if (set?.fired === true) return undefined;
    const early = this.recorded();
    if (early !== undefined) return this.read(early.payload);
    await this.reopen();
    const due = await this.setTimer(timer, () => this.run.host.latest() + millis(time));
    const got = await this.run.wait<{ payload: unknown } | undefined>(this.stand, this.visit, due, now => this.take() ?? fire(this.run, timer, due, now));
    return got === undefined ? undefined : this.read(got.payload);
  }

  /** Payloads one after the other, until the run is cancelled. */
  async *[Symbol.asyncIterator](): AsyncIterator<T> {
    for (;;) yield await this.recv();
  }

  /** Frees the token. It is also free when the run ends. */
  close(): void {
    this.run.closeHook(this.stand, this.visit);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  private take(): { got: { payload: unknown } } | undefined {
    const delivery = this.run.takeDelivery(this.token);
    if (delivery === undefined) return undefined;
    this.given += 1;
    this.run.addGiven('hookReceived', { hook: this.visit, arrival: delivery.arrival, payload: delivery.payload });
    return { got: { payload: delivery.payload } };
  }

  private recorded(): { payload: unknown } | undefined {
    const hook = this.run.hookAt(this.visit);
    if (hook === undefined || this.given >= (hook.received?.length ?? 0)) return undefined;
    return { payload: hook.received![this.given++] };
  }

  private async owned(): Promise<void> {
    this.run.refuseInside(this.visit);
    const owner = await this.conflict();
    if (owner !== undefined) {
      const fail = fatal(`the token ${this.token} is owned by ${owner.runId}: ask \`conflict()\` before you wait`);
      fail.at = this.visit;
      throw fail;
    }
  }

  /** Opens a hook again that was closed before a restart: a branch that lost there may go on here. */
  private async reopen(): Promise<void> {
    const hook = this.run.hookAt(this.visit) as HookRecord;
    if (hook.state !== 'closed' || !this.run.carried.has(this.visit)) return;
    this.run.checkCancelled(this.stand.shielded);
    await this.run.live(this.stand, this.visit);
    this.run.draft('openHook', { hook: this.visit, token: this.token });
    await this.owned();
  }

  private async read(payload: unknown): Promise<T> {
    return checked(this.schema, payload, `the payload for ${this.token}`);
  }
}

/** A run that another one has started. */
export class Child<Out> {
  constructor(private readonly run: Run, private readonly stand: Stand, private readonly visit: string, /** Id of the child. */ readonly id: string) {}

  /** How the child ended, whatever that is. */
  async outcome(): Promise<Outcome> {
    const record = (this.run.records.get(this.visit) as { child: { outcome?: Outcome } }).child;
    if (record.outcome !== undefined) return record.outcome;
    return this.run.wait(this.stand, this.visit, undefined, () => {
      const ended = this.run.takeChildEnd(this.visit, this.id);
      if (ended === undefined) return undefined;
      this.run.addGiven('childFinished', { child: this.visit, arrival: ended.arrival, outcome: ended.outcome });
      return { got: ended.outcome };
    });
  }

  /** The child's result. Any other end is thrown as a failure. */
  async result(): Promise<Out> {
    const outcome = await this.outcome();
    if (typeof outcome === 'object' && 'completed' in outcome) return outcome.completed as Out;
    const fail = this.failure(outcome);
    fail.at = this.visit;
    throw fail;
  }

  private failure(outcome: Exclude<Outcome, { completed: unknown }>): Fail {
    if (outcome === 'timedOut') return new Fail('timeout', `${this.visit}: ${this.id} has timed out`);
    if ('failed' in outcome) return Fail.recorded(this.visit, outcome.failed);
    if ('cancelled' in outcome) return fatal(`${this.visit}: ${this.id} was cancelled: ${outcome.cancelled}`);
    return fatal(`${this.visit}: ${this.id} has ended as ${outcome.purged}, and its result is no longer kept`);
  }
}

const ONCE_NAMES = { run: '@once', key: '@once-key', workspace: '@once-workspace' };

async function runOnce<T>(run: Run, stand: Stand, label: string, body: () => Promise<T> | T, options: OnceOptions): Promise<T> {
  const kind = options.scope ?? 'run';
  const wire = kind === 'workspace' ? 'workspace' : { key: [run.claim.scope, run.claim.key] };
  const scope = kind === 'run' ? '' : kind === 'workspace' ? '*' : keyScope(run.claim.scope, run.claim.key);
  const place = placeOf(scope, label);
  const asks = onceVisit(ONCE_NAMES[kind], label);
  const isInside = run.isInside;
  const call = (ask: unknown) => run.host.once({ scope: wire, label, run: run.id, ask }) as Promise<OnceAnswer>;
  const made = async (active: Parameters<Run['over']>[0]) => encode(await run.call(active, options.timeout === undefined ? undefined : millis(options.timeout), body));
  const shared = async (active: Parameters<Run['over']>[0]): Promise<OnceAnswer> => {
    const claimed = await call('claim');
    if (!('mine' in claimed)) return claimed;
    try {
      const value = decode(await made(active));
      const ttlMs = options.ttl === undefined ? null : millis(options.ttl);
      return await call({ settle: { fence: claimed.mine, value, ttlMs } });
    } catch (thrown) {
      await call({ release: { fence: claimed.mine } });
      throw thrown;
    }
  };
  return run.turnOf(place, async () => {
    for (;;) {
      if (run.onces.has(place)) return run.onces.get(place) as T;
      const failure = failureAt(run, asks, isInside);
      if (failure !== undefined) throw Fail.recorded(label, failure);
      const active = await run.effect(stand, asks);
      const began = run.host.earliest();
      let answer: OnceAnswer;
      try {
        answer = kind === 'run' ? { settled: decode(await made(active)) } : await shared(active);
      } catch (thrown) {
        if (!run.over(active)) return never();
        if (isInside) throw thrown;
        run.add('stepStarted', { step: asks, attempt: 1, at: began });
        run.add('stepFailed', failedEntry(asks, 1, viewOf(failOf(thrown))));
        continue;
      }
      if (!run.over(active)) return never();
      if ('settled' in answer) {
        run.addGiven('once', { label, ...(scope === '' ? {} : { scope }), value: answer.settled, ...(isInside ? { inside: true } : {}) });
      } else if ('inFlight' in answer) {
        // It may have been settled before this run was among those that are told.
        run.look();
        await run.wait(stand, asks, undefined, () => {
          const arrival = run.takeSettledOnce(scope, label);
          if (arrival === undefined) return undefined;
          run.add('noted', { arrival });
          return { got: undefined };
        });
      } else throw fatal(`\`runOnce\` was answered with ${JSON.stringify(answer)}`);
    }
  });
}

type OnceAnswer = { mine: number } | { settled: unknown } | { inFlight: string } | { released: null };

function failureAt(run: Run, asks: string, isInside: boolean): FailureView | undefined {
  const record = run.records.get(asks) as Record_ | undefined;
  if (record === undefined || isInside) return undefined;
  run.visitAgain(asks);
  return typeof record === 'object' && 'failed' in record ? record.failed : undefined;
}

function keyScope(scope: string, key: string): string {
  return `k${Buffer.byteLength(scope)}/${scope}/${key}`;
}
