// Plays programs of the language of crates/semel/tests/programs (`Act`), with a crash at every boundary. A Rust test has drawn them,
// and has written beside each what is expected of it.
import type pgDriver from 'pg';
import { Cancelled, Fail, fatal, workflow, type Attempt, type Ctx, RunFailed, type RunHandle, type RunView, type Semel, SemelError, type Workflow } from '../src/index.js';
import { pg, pgTable } from '../src/pg.js';
import { crashEverywhere, TestServer } from '../src/testing.js';

/** A line of programs.jsonl. */
export interface Program {
  seed: number;
  acts: Act[];
  /** How many effects of a name there are, and how often one of them is asked for. */
  effects: { name: string; least: number; most: number; calls: 'one' | 'several' | 'shared' | 'rows' }[];
  /** The result; null for what depends on chance. */
  values: (string | null)[];
  /** How many bodies may be at work at the same time. */
  atOnce: number;
}

type Act = { [kind: string]: any };
type Detail = RunView & { steps: { path: string; status: string; effectKey: string }[] };
type Input = [place: string, acts: Act[]];

const RETRY = { initial: 25, factor: 1, jitter: 0, maxAttempts: 4 };
const LATER = 25;
/** The clocks of workers and server are known to a millisecond. */
const ROUNDING = 2;
/** No play takes this long, in milliseconds. */
const PATIENCE = 30_000;
/** Programs that are played at the same time. */
const LANES = 6;
const FENCE = 'ts_programs_fence';

const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));

async function install(pool: pgDriver.Pool): Promise<void> {
  await pool.query(pgTable(FENCE));
  await pool.query('CREATE TABLE IF NOT EXISTS ts_programs_paid (play text NOT NULL, name text NOT NULL)');
}

/** The world outside of one play: a provider that recognises keys, and what went wrong. */
class Town {
  /** The worker at work: 1 before a crash, 2 after it. */
  life = 0;
  over = false;
  readonly calls: { name: string; key: string; life: number }[] = [];
  readonly wrong: string[] = [];
  /** Deliveries by token. */
  readonly brought = new Map<string, Promise<void>>();
  private readonly asked = new Map<string, number>();
  readonly execute: Workflow<Input, string[]>;

  constructor(readonly play: string, readonly semel: Semel, readonly pool: pgDriver.Pool) {
    // A version of its own: workers of other plays do not take its runs.
    this.execute = workflow<Input, string[]>('programs', { version: play }, (ctx, [place, acts]) => this.playAll(ctx, place, acts));
  }

  apply(name: string, key: string): number {
    this.calls.push({ name, key, life: this.life });
    return this.called(key);
  }

  called(key: string): number {
    return this.calls.filter(call => call.key === key).length;
  }

  private effect<T>(name: string, value: T): (a: Attempt) => T {
    return a => {
      this.apply(name, a.key);
      return value;
    };
  }

  /** A wait, measured from when it was first asked for. */
  private async nap(ctx: Ctx, place: string, name: string, ms: number): Promise<void> {
    const at = `${place}/${name}`, asked = this.asked.get(at) ?? performance.now();
    this.asked.set(at, asked);
    await ctx.sleep(name, ms);
    const slept = performance.now() - asked;
    if (slept + ROUNDING < ms) this.wrong.push(`the timer ${at} of ${ms} ms has fired after ${slept} ms`);
  }

  /** Brings a hook its payloads as soon as it is open. */
  private async bring(token: string, payloads: number): Promise<void> {
    while (!this.over && await this.semel.hook(token) === undefined) await pause(5);
    try {
      for (let i = 0; i < payloads && !this.over; i++) await this.semel.deliver(token, i, { id: `${token} ${i}` });
    } catch (closed) {
      // The hook's branch has lost meanwhile, or the run has ended. A run that still waits for it never ends, which is noticed.
      if (!(closed instanceof SemelError) || closed.status !== 404) throw closed;
    }
  }

  private async playAll(ctx: Ctx, place: string, acts: Act[]): Promise<string[]> {
    const values: string[] = [];
    for (const act of acts) {
      const [kind, of] = Object.entries(act)[0]!;
      const player = this.players[kind];
      if (player === undefined) throw fatal(`there is no act ${kind}`);
      values.push(...await player(ctx, place, of));
    }
    return values;
  }

  private readonly players: { [kind: string]: (ctx: Ctx, place: string, of: any) => Promise<string[]> } = {
    Step: async (ctx, _, { n, fails }) => [await ctx.step(`s${n}`, a => {
      if (a.number <= fails) throw new Error('as planned');
      return this.effect(`s${n}`, `s${n}`)(a);
    }, { retry: RETRY })],
    Fatal: async (ctx, _, { n }) => {
      const failed = await ctx.step(`f${n}`, a => { this.apply(`f${n}`, a.key); throw fatal('as planned'); }).catch((fail: Fail) => fail);
      if (failed instanceof Cancelled) throw failed;
      return [`f${n} failed`];
    },
    Letter: async (ctx, _, { n }) => [await ctx.step(`m${n}`, this.effect(`m${n}`, `m${n}`), { atMostOnce: true })],
    Asked: async (ctx, _, { n, lost }) => [await ctx.step(`a${n}`, a => {
      this.apply(`a${n}`, a.key);
      if (lost) throw new Error('as planned');
      return `a${n}`;
    }, { retry: { maxAttempts: 1 }, reconcile: a => (this.called(a.key) > 0 ? `a${n}` : undefined) })],
    Pay: async (ctx, _, { n }) => [await ctx.tx(`t${n}`, pg(this.pool, { table: FENCE }), async db => {
      await db.query('INSERT INTO ts_programs_paid VALUES ($1, $2)', [this.play, `t${n}`]);
      return `t${n}`;
    })],
    Repeat: async (ctx, _, { n, times, indexed }) => {
      const values: string[] = [];
      for (let i = 0; i < times; i++) values.push(`r${n}.${await ctx.step(`r${n}`, this.effect(`r${n}`, i), indexed ? { indexed } : { key: i })}`);
      return values;
    },
    Loop: async (ctx, place, { n, times, acts }) => {
      const values: string[] = [];
      for (let i = 0; i < times; i++) values.push(...await this.playAll(ctx.scope(`l${n}-${i}`), `${place}/l${n}-${i}`, acts));
      return values;
    },
    Join: async (ctx, place, { n, left, right }) => {
      const both = await ctx.all({ [`left${n}`]: c => this.playAll(c, place, left), [`right${n}`]: c => this.playAll(c, place, right) });
      return [...both[`left${n}`]!, ...both[`right${n}`]!];
    },
    Race: async (ctx, place, { n, late, limit, acts }) => {
      const won = await ctx.race(`race${n}`, {
        part: async c => {
          const values = await this.playAll(c, place, acts);
          if (late) {
            await c.sleep(`too long ${n}`, limit * 1000);
            await c.step(`never ${n}`, () => { throw fatal('this is never reached'); });
          }
          return values;
        },
        limit: c => this.nap(c, place, `limit${n}`, limit),
      });
      return won.winner === 'part' ? won.value as string[] : ['too late'];
    },
    Close: async (ctx, place, { n, millis }) => {
      // The longer one is asked first: when both are over, it would win.
      const { winner } = await ctx.race(`close${n}`, {
        long: c => this.nap(c, place, `long${n}`, millis * 2),
        short: c => this.nap(c, place, `short${n}`, millis),
      });
      await ctx.step(`c${n} ${winner}`, this.effect(`c${n}`, null));
      await this.nap(ctx, place, `after ${n}`, millis * 2);
      return [winner];
    },
    Sleep: async (ctx, place, { n, millis }) => {
      await this.nap(ctx, place, `sl${n}`, millis);
      return ['slept'];
    },
    Hook: async (ctx, place, { n, recv, recv_for, in_vain }) => {
      const token = `${place}:h${n}`, hook = ctx.hook<number>(token), values: unknown[] = [];
      if (!this.brought.has(token)) this.brought.set(token, this.bring(token, recv + recv_for));
      for (let i = 0; i < recv; i++) values.push(await hook.recv());
      for (let i = 0; i < recv_for; i++) values.push(await hook.recvFor('1h'));
      if (in_vain != null) values.push(await hook.recvFor(in_vain));
      return values.map((value, i) => (i < recv ? String(value) : value === undefined ? 'None' : `Some(${value})`));
    },
    Child: async (ctx, place, { n, acts }) => (await ctx.child(this.execute, [`${place}/c${n}`, acts], { name: 'part', key: n })).result(),
    Once: async (ctx, place, { n, shared: all }) => {
      const name = all ? `q${n % 2}` : `o${n}`, label = all ? `${this.play} ${name}` : `${place}/o${n}`;
      const make = () => `${name} made by call ${this.apply(name, label)}`;
      const value = await ctx.runOnce(label, make, { scope: all ? 'workspace' : 'run' });
      return [value.split(' ')[0]!];
    },
    Values: async (ctx, place, { n }) => {
      const values = [(await ctx.now(`v${n}`)).getTime(), await ctx.uuid(`v${n}`)];
      const noted = await ctx.step(`v${n}`, () => values);
      await this.nap(ctx, place, `v${n} later`, LATER);
      if (JSON.stringify(noted) !== JSON.stringify(values)) throw fatal('a value has changed');
      return ['the same'];
    },
  };

  /** Does what a person would do: says what became of steps in doubt. A run that is paused for another reason is wrong. */
  async operate(run: RunHandle, everyMs: number, patience: number): Promise<void> {
    const ended = run.result({ timeout: patience }).then(() => true, failed => failed instanceof RunFailed);
    while (!await Promise.race([ended.then(() => true), pause(everyMs).then(() => false)])) {
      for await (const paused of this.semel.list({ workflow: 'programs', status: 'PAUSED' })) {
        if (paused.workflowVersion === this.play) await this.settle(paused.id);
      }
    }
    if (!await ended) {
      const view = await run.get() as Detail;
      this.wrong.push(`it is still ${view.status}: ${JSON.stringify(view.steps)}`);
      await run.cancel('it can never end');
    }
    this.over = true;
  }

  private async settle(id: string): Promise<void> {
    const run = this.semel.run(id);
    const seen = await run.get() as Detail;
    const doubts = seen.steps.filter(step => step.status === 'IN_DOUBT');
    for (const { path, effectKey } of doubts) {
      await run.resolve(path, this.called(effectKey) > 0 ? { happened: path.split('/').at(-1) } : 'did-not-happen');
    }
    if (seen.status === 'PAUSED' && doubts.length === 0) {
      this.wrong.push(`${id} is paused: ${seen.pauseReason}`);
      await run.cancel('it can never end');
    }
  }

  /** What is not as it should be at the end. */
  async judge(program: Program, run: RunView, crashed: boolean): Promise<string[]> {
    const wrong = [...this.wrong], values = run.result as string[] | undefined;
    const fits = values?.length === program.values.length && program.values.every((value, i) => value === null || value === values[i]);
    if (run.status !== 'COMPLETED' || !fits) wrong.push(`it is ${run.status} with ${JSON.stringify(values ?? run.error)}, not ${JSON.stringify(program.values)}`);
    const known = new Set(program.effects.map(effect => effect.name));
    wrong.push(...this.calls.filter(call => !known.has(call.name)).map(call => `nothing asks for ${call.name}`));
    for (const { name, least, most, calls } of program.effects) {
      const keys = new Set(this.calls.filter(call => call.name === name).map(call => call.key));
      const times = calls === 'rows' ? await this.paid(name) : keys.size;
      if (times < least || times > most) wrong.push(`${name} took place ${times} times, not ${least} to ${most} times`);
      const allowed = calls === 'one' || !crashed ? 1 : 2;
      for (const key of keys) if (this.called(key) > allowed) wrong.push(`${name} was asked for ${this.called(key)} times under ${key}`);
    }
    const of = (life: number) => new Set(this.calls.filter(call => call.life === life).map(call => call.key));
    const before = of(1), repeated = [...of(2)].filter(key => before.has(key));
    if (repeated.length > program.atOnce) wrong.push(`the crash has repeated ${repeated.length} effects, of which ${program.atOnce} can be at work at once`);
    return wrong;
  }

  private async paid(name: string): Promise<number> {
    const { rows } = await this.pool.query('SELECT count(*) FROM ts_programs_paid WHERE play = $1 AND name = $2', [this.play, name]);
    return Number(rows[0].count);
  }
}

/** Plays a program with a crash at every boundary, and gives their number. What is wrong is thrown. */
async function playProgram(semel: Semel, pool: pgDriver.Pool, program: Program, patience: number): Promise<number> {
  const towns = new Map<string, Town>();
  const town = (play: string) => {
    const known = towns.get(play) ?? new Town(play, semel, pool);
    towns.set(play, known);
    return known;
  };
  const canBeInDoubt = program.effects.some(effect => effect.calls === 'one');
  return crashEverywhere({
    semel,
    worker: play => {
      town(play).life += 1;
      // Errors are faults of the SDK: what the server refuses, and code that does not fit.
      const log = (level: string, message: string) => { if (level === 'error') town(play).wrong.push(message); };
      return { workflows: [town(play).execute], lease: '30s', log };
    },
    start: play => semel.start(town(play).execute, [play, program.acts], { key: play }),
    during: (play, run) => town(play).operate(run, canBeInDoubt ? 30 : 300, patience),
    check: async (run, boundary) => {
      const play = run.key;
      await Promise.all(town(play).brought.values());
      const wrong = await town(play).judge(program, run, boundary !== 'nowhere');
      towns.delete(play);
      if (wrong.length > 0) throw new Error(`program ${program.seed}, a crash ${boundary} (${play}, ${run.id}): ${wrong.join('; ')}`);
    },
  });
}

/**
 * Plays programs, several at the same time, until all are played or one is wrong. Gives the number of crashes. Each lane has a server of its
 * own: a run that is due wakes one waiting claim at once, and that should be one that can take it.
 */
export async function playPrograms(pool: pgDriver.Pool, programs: Program[], { lanes = LANES, patience = PATIENCE } = {}): Promise<number> {
  const left = [...programs], failed: unknown[] = [];
  let crashes = 0;
  await install(pool);
  await Promise.all(Array.from({ length: Math.min(lanes, programs.length) }, async () => {
    await using server = await TestServer.start();
    const semel = server.client();
    for (let program = left.shift(); program !== undefined; program = left.shift()) {
      await playProgram(semel, pool, program, patience).then(count => { crashes += count; }, wrong => {
        failed.push(wrong);
        left.length = 0;
      });
    }
    semel.close();
  }));
  if (failed.length > 0) throw failed[0];
  return crashes;
}
