import { AsyncLocalStorage } from 'node:async_hooks';
import { Cancelled, Fail, failOf, fatal, viewOf } from './errors.js';
import { decode, encode, encodeGiven } from './json.js';
import { pathKey } from './keys.js';
import type {
  Arrival, Class, Commit, CommitAnswer, FailureView, FoldedRun, HookRecord, Outcome, PlacedDraft, Record_, Saved, Settled,
} from './wire.js';

/** What a run asks of the worker that drives it. */
export interface Host {
  /** A time that the store has certainly reached. */
  earliest(): number;
  /** A time that the store has certainly not passed by more than the network took. */
  latest(): number;
  random(): number;
  /** Sends a commit, again and again until the store has answered. */
  commit(commit: Commit): Promise<CommitAnswer>;
  /** Messages of a run's inbox from this number on. */
  inbox(run: string, from: number): Promise<Arrival[]>;
  /** A call about a shared `run_once` value, until it is answered. */
  once(call: object): Promise<unknown>;
  /** Calls the run's `turn` when nothing moves by itself any more. */
  schedule(run: Run): void;
  /** The run is out of memory: it rests, has ended or belongs to another worker. */
  forget(run: Run): void;
  log(level: 'warn' | 'error', message: string): void;
  /** For tests: called before and after each commit, and at both ends of each body. A promise that does not settle is a crash. */
  probe?(run: string, moment: string): Promise<void>;
}

/** A branch of a race. What lost goes on with nothing new. */
export class Branch {
  lost = false;
  constructor(readonly parent?: Branch) {}

  get isLost(): boolean {
    return this.lost || (this.parent?.isLost ?? false);
  }
}

/** Where code of a workflow stands: in which branch, and whether a cancel stops it. */
export interface Stand {
  branch: Branch;
  shielded: boolean;
}

interface Wait {
  stand: Stand;
  due: number | undefined;
  attempt(now: number): boolean;
  cancel(error: Fail): void;
}

interface Body {
  stand: Stand;
  abort: AbortController;
}

/** How long running effects are waited for if the code does not fit the ledger: they may wait for a branch that is stopped. */
const GRACE = 10_000;
/** A wait that is shorter than this is not worth the two writes of a rest. */
const NOT_WORTH_A_REST = 20;
/** Sentinel of a promise that never settles: the run goes on elsewhere, or not at all. */
export const never = <T>(): Promise<T> => new Promise<T>(() => {});
/** Maximum length of a commit in characters, far below what the server takes; a longer one is sent in parts. */
const COMMIT = 4 * 1024 * 1024;
/** Names of records that an execution may leave out. */
const OPTIONAL = /(^|\/)@patch\[/;

const inside = new AsyncLocalStorage<Run>();

/** One run in memory: its records, what is not committed yet, and what waits for what. It has at most one commit in flight. */
export class Run {
  readonly records = new Map<string, Record_>();
  readonly onces = new Map<string, unknown>();
  readonly carried: Set<string>;
  cancelling: { reason: string; by: string } | undefined;
  /** Whether recorded results are given, and nothing new begins. */
  replaying: boolean;
  seen = 0;

  private readonly missing = new Set<string>();
  private readonly visited = new Set<string>();
  private readonly ticks = new Map<string, number>();
  private readonly intents = new Set<string>();
  private version: number;
  private durable: number;
  private entries: string[] = [];
  private drafts: PlacedDraft[] = [];
  private inFlight = false;
  private leaving = false;
  private gone = false;
  private stopping = false;
  private diverged: string | undefined;
  private grace: number | undefined;
  private judged = 0;
  private parked: { asks: string | undefined; stand: Stand; resolve: () => void }[] = [];
  private barriers: { version: number; stand: Stand; resolve: () => void }[] = [];
  private deferred: (() => void)[] = [];
  private readonly waits = new Set<Wait>();
  private readonly bodies = new Set<Body>();
  private readonly turns = new Map<string, Promise<unknown>>();
  private end: { value: unknown } | { fail: Fail } | undefined;
  private alarm: ReturnType<typeof setTimeout> | undefined;
  private deliveries = new Map<string, { arrival: number; payload: unknown }[]>();
  private childEnds = new Map<string, { arrival: number; run: string; outcome: Outcome }>();
  private settledOnces = new Map<string, number[]>();
  private cancels: { arrival: number; reason: string; by: string }[] = [];
  private releases: { arrival: number; by: string }[] = [];
  private reading = false;
  private unread: number | undefined;
  /** Number of the latest message that the server has told of. */
  private told = 0;

  constructor(readonly host: Host, readonly claim: FoldedRun) {
    this.version = this.durable = claim.version;
    this.cancelling = claim.cancelling;
    this.carried = new Set(claim.carried);
    for (const [visit, record] of Object.entries(claim.records)) {
      this.records.set(visit, record);
      if (!this.carried.has(visit) && !OPTIONAL.test(visit)) this.missing.add(visit);
      if (typeof record === 'object' && 'started' in record && record.started.class !== 'keyed') this.intents.add(visit);
    }
    for (const once of claim.once ?? []) this.onces.set(placeOf(once.scope ?? '', once.label), once.value);
    this.replaying = this.missing.size > 0;
    this.takeIn(claim.inbox);
    if (claim.inboxFrom !== undefined) this.unread = claim.inboxFrom;
    this.told = claim.arrivals ?? 0;
  }

  get id(): string {
    return this.claim.run;
  }

  get isGone(): boolean {
    return this.gone;
  }

  /** Starts the execution. */
  begin(execute: () => Promise<unknown>): void {
    const ended = (end: { value: unknown } | { fail: Fail }) => {
      if (this.gone) return;
      this.end = end;
      this.dirty();
    };
    // A synchronous throw is a failure like any other.
    void Promise.resolve().then(execute).then(value => ended({ value }), thrown => ended({ fail: failOf(thrown) }));
    this.dirty();
  }

  // What the code visits

  /** Visits a path; a path that is not counted is visited once. */
  visit(path: string, indexed = false): string {
    this.refuseInside(path);
    const before = this.ticks.get(path) ?? 0;
    if (before > 0 && !indexed) {
      throw fatal(`${path} is visited a second time in this run; add a key (\`{ key }\`) or count the visits (\`{ indexed: true }\`)`);
    }
    this.ticks.set(path, before + 1);
    const visit = before === 0 ? path : `${path}#${before + 1}`;
    this.make(visit);
    return visit;
  }

  private make(visit: string): void {
    this.visited.add(visit);
    if (this.missing.delete(visit) && this.missing.size === 0) this.dirty();
  }

  /** Visits a path that several calls share. */
  visitAgain(path: string): void {
    if (this.visited.has(path)) return;
    this.ticks.set(path, 1);
    this.make(path);
  }

  /** Pauses the run: its code does not fit what is recorded. */
  diverge(why: string): void {
    this.diverged ??= why;
    this.dirty();
  }

  /** What stands at a visit, if it is of the kind that the code asks for. A record of another kind pauses the run. */
  found<K extends string>(visit: string, member: K, kind: string): (Record_ & { [k in K]: unknown }) | undefined {
    const record = this.records.get(visit);
    if (record === undefined) return undefined;
    if (typeof record === 'object' && member in record) return record as Record_ & { [k in K]: unknown };
    this.diverge(`\`${visit}\` is ${kind} in the code, but not in the ledger`);
    return undefined;
  }

  /** Refuses a call from inside of a body, which a replay does not call. */
  refuseInside(what: string): void {
    if (inside.getStore() !== this) return;
    const why = `\`${what}\` is asked for inside of the body of a step or of \`runOnce\`, which is not called again when its result `
      + 'is recorded: ask before it, and use the answer in it';
    this.diverge(why);
    throw fatal(why);
  }

  get isInside(): boolean {
    return inside.getStore() === this;
  }

  // What is recorded

  /** Records an entry with the next commit. */
  add(kind: string, members: object): void {
    this.addText(`{"${kind}":${encode(members)}}`, { [kind]: members });
  }

  /** Records an entry with a value that the server has sent. */
  addGiven(kind: string, members: object): void {
    this.addText(`{"${kind}":${encodeGiven(members)}}`, { [kind]: members });
  }

  private addText(text: string, entry: { [kind: string]: unknown }): void {
    if (this.gone || this.leaving) return;
    this.entries.push(text);
    this.version += 1;
    this.apply(entry);
    this.dirty();
  }

  /** Records the end of an attempt; the text of the value is written once. */
  complete(step: string, started: Started | undefined, value: string): void {
    if (started !== undefined) this.add('stepStarted', startedEntry(step, started));
    const at = encode(step);
    this.addText(`{"stepCompleted":{"step":${at},"value":${value}}}`, { stepCompleted: { step, value: decode(value) } });
  }

  /** Asks the store for a hook or a child with the next commit. */
  draft(kind: 'openHook' | 'startChild', members: { [name: string]: unknown }): void {
    if (this.gone || this.leaving) return;
    this.drafts.push({ after: this.entries.length, draft: `{"${kind}":${encode(members)}}` });
    this.version += 1;
    if (kind === 'openHook') {
      const before = this.records.get(members['hook'] as string);
      const received = typeof before === 'object' && 'hook' in before ? before.hook.received ?? [] : [];
      const hook: HookRecord = { token: members['token'] as string, state: 'opening', received };
      this.records.set(members['hook'] as string, { hook });
    } else {
      this.records.set(members['child'] as string, { child: {} });
    }
    this.dirty();
  }

  /** The change of the records by one of our own entries; the server checks the same entry with the ledger. */
  private apply(entry: { [kind: string]: any }): void {
    const { stepStarted, stepCompleted, stepFailed, stepSkipped, stepInDoubt, timerSet, timerFired, hookReceived, hookClosed, childFinished, once, recorded } = entry;
    if (stepStarted) {
      const { step, attempt, class: of = 'keyed' } = stepStarted;
      this.records.set(step, { started: { attempt, class: of } });
      if (of !== 'keyed') this.intents.add(step);
    } else if (stepCompleted) this.records.set(stepCompleted.step, { completed: stepCompleted.value });
    else if (stepFailed) {
      const { step, attempt, error, retryAt } = stepFailed;
      this.records.set(step, retryAt === undefined ? { failed: error } : { retrying: { attempt, at: retryAt, error } });
    } else if (stepSkipped) this.records.set(stepSkipped.step, 'skipped');
    else if (stepInDoubt) {
      const before = this.records.get(stepInDoubt.step) as { started?: { attempt: number; class: Class } } | undefined;
      this.records.set(stepInDoubt.step, { inDoubt: before?.started ?? { attempt: 1, class: 'at-most-once' } });
    } else if (timerSet) this.records.set(timerSet.timer, { timer: { at: timerSet.at, fired: false } });
    else if (timerFired) (this.records.get(timerFired.timer) as { timer: { fired: boolean } }).timer.fired = true;
    else if (hookReceived) this.hookAt(hookReceived.hook)?.received?.push(hookReceived.payload);
    else if (hookClosed) {
      const hook = this.hookAt(hookClosed.hook);
      if (hook) hook.state = 'closed';
    } else if (childFinished) (this.records.get(childFinished.child) as { child: { outcome?: Outcome } }).child.outcome = childFinished.outcome;
    else if (once) this.onces.set(placeOf(once.scope ?? '', once.label), once.value);
    else if (recorded) this.records.set(recorded.at, { value: recorded.value });
  }

  hookAt(visit: string): HookRecord | undefined {
    const record = this.records.get(visit);
    if (typeof record !== 'object' || !('hook' in record)) return undefined;
    record.hook.received ??= [];
    return record.hook;
  }

  // When code goes on

  private get mayAct(): boolean {
    return !this.gone && !this.leaving && this.diverged === undefined;
  }

  private maySettle(stand: Stand): boolean {
    return this.mayAct && !stand.branch.isLost;
  }

  checkCancelled(shielded: boolean): void {
    if (this.cancelling !== undefined && !shielded) throw new Cancelled(this.cancelling.reason);
  }

  /** Completes when everything recorded was reached again, and something new may begin. Never in a branch that lost. */
  live(stand: Stand, asks?: string): Promise<void> {
    if (!this.replaying && this.maySettle(stand)) return Promise.resolve();
    return new Promise(resolve => {
      this.parked.push({ asks, stand, resolve });
      this.dirty();
    });
  }

  /** Completes when everything recorded so far is durable. */
  written(stand: Stand): Promise<void> {
    if (this.durable >= this.version && this.maySettle(stand)) return Promise.resolve();
    return new Promise(resolve => {
      this.barriers.push({ version: this.version, stand, resolve });
      this.dirty();
    });
  }

  /** Begins an effect: everything before it is durable, and so is its intent if it has one. */
  async effect(stand: Stand, at: string, intent?: { attempt: number; class: Class }): Promise<Body> {
    this.checkCancelled(stand.shielded);
    await this.live(stand, at);
    await this.written(stand);
    // What has changed since: a body begins only where its end counts, and none begins in a worker that stops.
    if (this.stopping || !this.maySettle(stand)) return never();
    this.checkCancelled(stand.shielded);
    const body: Body = { stand, abort: new AbortController() };
    this.bodies.add(body);
    if (intent !== undefined) {
      this.add('stepStarted', startedEntry(at, intent));
      await this.written(stand);
      if (!this.maySettle(stand)) {
        this.over(body);
        return never();
      }
    }
    return body;
  }

  /** An effect has ended; false if its branch has lost or the run is gone, and its result is dropped. */
  over(body: Body): boolean {
    const counts = this.bodies.delete(body);
    this.dirty();
    return counts && !this.gone && !body.stand.branch.isLost;
  }

  /** Calls a body where `ctx` refuses. With a limit, it fails with `timeout` when the time is over. */
  async call<T>(body: Body, limit: number | undefined, work: () => T | Promise<T>): Promise<T> {
    const running = inside.run(this, async () => work());
    if (limit === undefined) return running;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        body.abort.abort();
        reject(new Fail('timeout', `the body took longer than ${limit} ms`));
      }, limit);
    });
    return Promise.race([running, late]).finally(() => clearTimeout(timer));
  }

  /** Waits durably: for a time, or for what `attempt` looks for. The run needs no worker meanwhile. */
  async wait<T>(stand: Stand, asks: string, due: number | undefined, attempt: (now: number) => { got: T } | undefined): Promise<T> {
    if (this.replaying) this.checkCancelled(stand.shielded);
    await this.live(stand, asks);
    return new Promise<T>((resolve, reject) => {
      const wait: Wait = {
        stand,
        due,
        attempt: now => {
          const got = attempt(now);
          if (got !== undefined) resolve(got.got);
          return got !== undefined;
        },
        cancel: reject,
      };
      this.waits.add(wait);
      this.tryWait(wait);
      this.dirty();
    });
  }

  private tryWait(wait: Wait): void {
    if (!this.mayAct || wait.stand.branch.isLost || this.replaying) return;
    if (wait.attempt(this.host.earliest())) {
      this.waits.delete(wait);
    } else if (this.cancelling !== undefined && !wait.stand.shielded) {
      this.waits.delete(wait);
      wait.cancel(new Cancelled(this.cancelling.reason));
    }
  }

  /** Does it when the run is live; in the order in which it was asked for. */
  defer(stand: Stand, act: () => void): void {
    if (stand.branch.isLost) return;
    if (this.replaying) this.deferred.push(() => stand.branch.isLost || act());
    else act();
    this.dirty();
  }

  /** One call at a time under a name. */
  async turnOf<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.turns.get(name) ?? Promise.resolve();
    const mine = before.then(work, work);
    this.turns.set(name, mine.catch(() => undefined));
    return mine;
  }

  /** A race is decided: what these branches wait for, and what their bodies bring, is dropped. */
  lose(branches: Branch[]): void {
    for (const branch of branches) branch.lost = true;
    for (const wait of this.waits) if (wait.stand.branch.isLost) this.waits.delete(wait);
    for (const body of this.bodies) {
      if (body.stand.branch.isLost) {
        this.bodies.delete(body);
        body.abort.abort();
      }
    }
    this.dirty();
  }

  // What comes from outside

  /** Takes in messages of the inbox. */
  takeIn(arrivals: Arrival[]): void {
    for (const { number, message } of arrivals) {
      if (number <= this.seen) continue;
      this.seen = number;
      if ('delivery' in message) {
        const { token, payload } = message.delivery;
        const waiting = this.deliveries.get(token) ?? [];
        this.deliveries.set(token, [...waiting, { arrival: number, payload }]);
      } else if ('childEnded' in message) {
        const { child, run, outcome } = message.childEnded;
        this.childEnds.set(child, { arrival: number, run, outcome });
      } else if ('onceSettled' in message) {
        const place = placeOf(message.onceSettled.scope, message.onceSettled.label);
        this.settledOnces.set(place, [...(this.settledOnces.get(place) ?? []), number]);
      } else if ('keyReleased' in message) this.releases.push({ arrival: number, by: message.keyReleased.by });
      else if ('cancelRequested' in message) this.cancels.push({ arrival: number, ...message.cancelRequested });
      else if ('parentCancelled' in message) {
        const { parent } = message.parentCancelled;
        this.cancels.push({ arrival: number, reason: `its parent ${parent} was cancelled`, by: parent });
      }
    }
    for (const wait of this.waits) this.tryWait(wait);
    this.dirty();
  }

  /** The next payload for a token, out of the inbox. */
  takeDelivery(token: string): { arrival: number; payload: unknown } | undefined {
    const waiting = this.deliveries.get(token);
    const first = waiting?.shift();
    if (waiting?.length === 0) this.deliveries.delete(token);
    return first;
  }

  takeChildEnd(child: string, run: string): { arrival: number; outcome: Outcome } | undefined {
    const ended = this.childEnds.get(child);
    if (ended === undefined || ended.run !== run) return undefined;
    this.childEnds.delete(child);
    return ended;
  }

  takeSettledOnce(scope: string, label: string): number | undefined {
    return this.settledOnces.get(placeOf(scope, label))?.shift();
  }

  /** So many messages have arrived: what is not read yet is read with the next turn. */
  heard(arrivals: number): void {
    if (arrivals <= Math.max(this.seen, this.told)) return;
    this.told = arrivals;
    this.look();
  }

  /** There are messages from this number on that are not read yet. */
  look(from = this.seen + 1): void {
    this.unread = Math.min(this.unread ?? from, from);
    this.dirty();
  }

  private read(): void {
    if (this.unread === undefined || this.reading || this.gone) return;
    const from = this.unread;
    this.unread = undefined;
    this.reading = true;
    void this.host.inbox(this.id, from).then(arrivals => {
      this.reading = false;
      if (this.gone) return;
      // A child that was attached may have ended long ago, under a number that was read already.
      for (const { number, message } of arrivals) {
        if (number <= this.seen && 'childEnded' in message) {
          const { child, run, outcome } = message.childEnded;
          if (this.waitsForChild(child)) this.childEnds.set(child, { arrival: number, run, outcome });
        }
      }
      this.takeIn(arrivals);
    }, error => {
      if (this.gone) return;
      this.host.log('error', `the inbox of ${this.id} cannot be read, and the run is given up here: ${failOf(error).message}`);
      this.drop();
    });
  }

  private waitsForChild(child: string): boolean {
    const record = this.records.get(child);
    return typeof record === 'object' && 'child' in record && record.child.outcome === undefined;
  }

  /** Records what operators have asked for; true if the code has something to do about it first. */
  private noteOperators(): boolean {
    if (this.replaying || !this.mayAct || this.cancels.length + this.releases.length === 0) return false;
    for (const { arrival, reason, by } of this.cancels.splice(0)) {
      if (this.cancelling !== undefined) {
        this.add('noted', { arrival });
        continue;
      }
      this.cancelling = { reason, by };
      this.add('cancelling', { arrival, reason, by });
      for (const wait of this.waits) this.tryWait(wait);
      for (const body of this.bodies) if (!body.stand.shielded) body.abort.abort();
    }
    for (const { arrival, by } of this.releases.splice(0)) this.add('keyReleased', { by, arrival });
    return true;
  }

  // Turns of the driver

  dirty(): void {
    if (!this.gone) this.host.schedule(this);
  }

  /** Gives the run back when its running bodies have ended. */
  stop(): void {
    this.stopping = true;
    this.dirty();
  }

  /** Drops the run: it belongs to another worker, or the process ends. Nothing of it goes on. */
  drop(): void {
    if (this.gone) return;
    this.gone = true;
    clearTimeout(this.alarm);
    for (const body of this.bodies) body.abort.abort();
    this.bodies.clear();
    this.waits.clear();
    this.parked = [];
    this.barriers = [];
    this.deferred = [];
    this.host.forget(this);
  }

  /** Moves on when nothing moves by itself. Called by the worker after all microtasks have run. */
  turn(): void {
    if (this.gone) return;
    if (this.replaying && this.endReplay()) return;
    this.read();
    if (this.noteOperators()) return;
    if (this.inFlight) return;
    if (!this.leaving && this.barriers.every(barrier => barrier.version <= this.durable)) this.leave();
    if (this.entries.length > 0 || this.drafts.length > 0) this.send();
    else this.setAlarm();
  }

  /** Ends the replay if everything recorded was reached; true if the code has something to do first. */
  private endReplay(): boolean {
    if (this.missing.size === 0) {
      this.replaying = false;
      const parked = this.parked;
      this.parked = [];
      for (const one of parked) one.stand.branch.isLost ? this.parked.push(one) : one.resolve();
      for (const act of this.deferred.splice(0)) act();
      this.dirty();
      return true;
    }
    if (this.diverged !== undefined) {
      this.replaying = false;
      return false;
    }
    // The code may still wait for something that is not ours; then it gets another turn before it is judged.
    if (this.end === undefined && (this.parked.length === 0 || this.judged++ < 1)) {
      if (this.parked.length > 0) this.dirty();
      return true;
    }
    this.judge();
    return true;
  }

  private judge(): void {
    const missing = [...this.missing].sort().slice(0, 5).map(visit => `\`${visit}\``).join(', ');
    const asked = [...new Set(this.parked.flatMap(one => (one.asks === undefined ? [] : [`\`${one.asks}\``])))].join(', ');
    const instead = asked === '' ? 'the code ends without it' : `the code asks for ${asked} instead`;
    this.replaying = false;
    this.diverge(`${missing} is in the ledger and ${instead}: was a step renamed, removed or moved? Or does the code decide by `
      + 'something that is not recorded: a clock, chance, or a promise of its own?');
  }

  /** Decides whether the run ends, rests or pauses here. */
  private leave(): void {
    const now = this.host.earliest();
    const { deadline } = this.claim;
    const idle = this.bodies.size === 0;
    if (deadline !== undefined && deadline <= now) {
      this.diverged = undefined;
      return this.last('timedOut', { limit: deadline });
    }
    if (this.diverged !== undefined) {
      this.grace ??= now + GRACE;
      if (idle || this.stopping || this.grace <= now) {
        this.host.log('error', `${this.id} does not fit its code and is paused: ${this.diverged}`);
        const why = this.diverged;
        this.diverged = undefined;
        this.last('paused', { reason: { diverged: why } });
      }
      return;
    }
    if (this.end !== undefined) return this.finish(this.end);
    if (this.stopping && idle) return this.last('waiting', { due: now });
    if (this.isInDoubt && idle) return this.last('paused', { reason: 'inDoubt' });
    if (idle && this.waits.size > 0 && !this.reading && this.unread === undefined) {
      const due = this.nextDue();
      if (due === undefined || due > now + NOT_WORTH_A_REST) this.last('waiting', { due: due ?? null });
    }
  }

  private last(kind: string, members: object): void {
    this.add(kind, members);
    this.leaving = true;
  }

  private get isInDoubt(): boolean {
    for (const record of this.records.values()) if (typeof record === 'object' && 'inDoubt' in record) return true;
    return false;
  }

  private finish(end: { value: unknown } | { fail: Fail }): void {
    if ('fail' in end) {
      const { fail } = end;
      if (fail.kind === 'cancelled' && this.cancelling !== undefined) return this.last('cancelled', this.cancelling);
      return this.last('failed', { error: viewOf(fail) });
    }
    for (const step of [...this.intents].sort()) {
      const record = this.records.get(step);
      if (typeof record === 'object' && 'started' in record) {
        this.add('stepInDoubt', { step, reason: 'the workflow went on without waiting for its end' });
      }
    }
    if (this.isInDoubt) return this.last('paused', { reason: 'inDoubt' });
    try {
      this.last('completed', { value: end.value ?? null });
    } catch (refused) {
      this.last('failed', { error: viewOf(failOf(refused)) });
    }
  }

  private nextDue(): number | undefined {
    const dues = [...this.waits].flatMap(wait => (wait.due === undefined ? [] : [wait.due]));
    if (this.claim.deadline !== undefined) dues.push(this.claim.deadline);
    return dues.length === 0 ? undefined : Math.min(...dues);
  }

  private setAlarm(): void {
    clearTimeout(this.alarm);
    if (this.leaving) return;
    const dues = [this.nextDue(), this.grace].filter(due => due !== undefined);
    if (dues.length === 0) return;
    const pause = Math.min(Math.max(Math.min(...dues) - this.host.earliest(), 0) + 1, 2 ** 31 - 1);
    this.alarm = setTimeout(() => {
      for (const wait of this.waits) this.tryWait(wait);
      this.dirty();
    }, pause);
  }

  private send(): void {
    const expected = this.version - this.entries.length - this.drafts.length;
    const { entries, drafts } = this.front();
    this.inFlight = true;
    const commit = { run: this.id, expected, seen: this.seen, entries, drafts };
    void this.deliver(commit).then(answer => {
      if (this.gone) return;
      this.inFlight = false;
      if ('ok' in answer) return this.saved(answer.ok);
      // Another owner has the run: it is dropped without a word. What the server refuses is a fault of this SDK.
      if (typeof answer.error !== 'object' || !('concurrency' in answer.error)) {
        this.host.log('error', `the server has refused a commit of ${this.id}: ${JSON.stringify(answer.error)}`);
      }
      this.drop();
    });
  }

  /** Takes from the front of what is to be recorded as much as fits into a commit. */
  private front(): { entries: string[]; drafts: PlacedDraft[] } {
    let n = 0, d = 0, size = 0;
    for (;;) {
      const draft = this.drafts[d];
      const isDraft = draft !== undefined && draft.after <= n;
      const next = isDraft ? draft.draft : this.entries[n];
      if (next === undefined || (size > 0 && size + next.length > COMMIT)) break;
      size += next.length;
      if (isDraft) d += 1;
      else n += 1;
    }
    const front = { entries: this.entries.splice(0, n), drafts: this.drafts.splice(0, d) };
    for (const draft of this.drafts) draft.after -= n;
    return front;
  }

  private async deliver(commit: Commit): Promise<CommitAnswer> {
    await this.host.probe?.(this.id, 'before a commit');
    const answer = await this.host.commit(commit);
    await this.host.probe?.(this.id, 'after a commit');
    return answer;
  }

  private saved(ok: Saved): void {
    this.durable = ok.version;
    for (const settled of ok.settled ?? []) this.settle(settled);
    if (this.leaving && this.durable >= this.version) return this.drop();
    this.heard(ok.arrivals ?? 0);
    this.barriers = this.barriers.filter(barrier => {
      if (barrier.version > this.durable) return true;
      if (!barrier.stand.branch.isLost) barrier.resolve();
      return false;
    });
    for (const wait of this.waits) this.tryWait(wait);
    this.dirty();
  }

  private settle(settled: Settled): void {
    if ('hookOpened' in settled) {
      const hook = this.hookAt(settled.hookOpened.hook);
      if (hook) hook.state = 'open';
    } else if ('hookConflicted' in settled) {
      const hook = this.hookAt(settled.hookConflicted.hook);
      if (hook) Object.assign(hook, { state: 'conflicted', owner: settled.hookConflicted.owner });
    } else {
      const { child, run, attached } = settled.childStarted;
      this.records.set(child, { child: { run } });
      if (attached) this.look(1);
    }
    for (const act of this.deferred.splice(0)) act();
  }

  /** Closes a hook: now, or as soon as the store has answered that it is open. */
  closeHook(stand: Stand, visit: string): void {
    this.defer(stand, () => {
      const state = this.hookAt(visit)?.state;
      if (state === 'open') this.add('hookClosed', { hook: visit });
      else if (state === 'opening') this.deferred.push(() => this.closeHook(stand, visit));
    });
  }

  /** Opens a hook unless the ledger has it. */
  openHook(stand: Stand, visit: string, token: string): void {
    const hook = this.found(visit, 'hook', 'a hook')?.hook as HookRecord | undefined;
    if (hook !== undefined && hook.state !== 'released') {
      if (hook.token !== token) this.diverge(`\`${visit}\` is not the hook that the ledger has there`);
      return;
    }
    this.defer(stand, () => this.draft('openHook', { hook: visit, token }));
  }
}

/** Where a value of `run_once` is kept. */
export function placeOf(scope: string, label: string): string {
  return `${scope}\u0000${label}`;
}

/** The path of a name in a scope, with its key. */
export function pathOf(scope: string, name: string, key?: string): string {
  const path = scope === '' ? name : `${scope}/${name}`;
  return key === undefined ? path : `${path}[${key}]`;
}

/** The visit under which the failure of a `run_once` is recorded. */
export function onceVisit(name: string, label: string): string {
  return `${name}[${pathKey(label)}]`;
}

/** The beginning of an attempt. Without `at`, its entry is written before the body begins. */
export interface Started {
  readonly attempt: number;
  readonly class: Class;
  /** Time at which the body began: one that the store has certainly reached. */
  readonly at?: number;
}

/** The beginning of an attempt as an entry has it. */
export function startedEntry(step: string, { attempt, class: of, at }: Started): object {
  return { step, attempt, ...(of === 'keyed' ? {} : { class: of }), ...(at === undefined ? {} : { at }) };
}

/** A recorded failure as an entry has it. */
export function failedEntry(step: string, attempt: number, error: FailureView, retryAt?: number): object {
  return retryAt === undefined ? { step, attempt, error } : { step, attempt, error, retryAt };
}
