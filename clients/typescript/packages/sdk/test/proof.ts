// A worker of the proof in crates/semel-server/tests/proof: it plays the programs of execute.rs and worker.rs there, until it is killed.
import pgDriver from 'pg';
import { Ctx } from '../src/ctx.js';
import { Cancelled, Fail, fatal, Semel, workflow, type Attempt, type QueueTask } from '../src/index.js';
import { pg } from '../src/pg.js';

type Told = [at: string, number: number][];
interface Program { place: string; acts: Act[] }
type Act = { [kind: string]: any };
/** What a remote step is given: where it takes place, and the run that asks for it. */
interface Remote { at: string; run: string }

const place = JSON.parse(process.env['SEMEL_PROOF_PLACE']!) as { server: string; recorder: string; rows: string; lease: { secs: number; nanos: number } };
const lease = place.lease.secs * 1000 + place.lease.nanos / 1_000_000;
/** How long an effect may take; some answers of the recorder take longer. A look-up has longer: without an answer, its step is in doubt. */
const PATIENCE = 400, LOOK_UP = 20_000, TX = 4_000;
const QUEUE = 'elsewhere';
/** The database may be away for a while, and the recorder fails often: no step gives up. */
const STUBBORN = { initial: 40, factor: 1, jitter: 0, maxAttempts: 10_000 };
const KEYED = { retry: STUBBORN, timeout: PATIENCE };

const pool = new pgDriver.Pool({ connectionString: place.rows, max: 6, connectionTimeoutMillis: 2_000, query_timeout: 2_000 });
// A connection that breaks while it is idle is replaced.
pool.on('error', error => console.error(`idle connection: ${error.message}`));

async function post<T>(path: string, body: unknown, patience: number): Promise<T> {
  const answer = await fetch(`${place.recorder}/${path}`, { method: 'POST', body: JSON.stringify(body), signal: AbortSignal.timeout(patience) });
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text) as T;
  throw answer.status === 409 ? fatal(`refused: ${text}`) : new Error(`${answer.status}: ${text}`);
}

function ask(at: string, kind: 'keyed' | 'blind', a: Attempt): object {
  return { at, run: a.runId, key: a.key, fence: a.fence, attempt: a.number, kind };
}

const effect = (at: string, kind: 'keyed' | 'blind') => (a: Attempt) => post<number>('effects', ask(at, kind, a), PATIENCE);

/** A program at work: at its place, and in a scope of its names, which ends with a slash. */
class Player {
  constructor(private readonly ctx: Ctx, private readonly place: string, private readonly scope = '') {}

  async all(acts: Act[]): Promise<Told> {
    const told: Told = [];
    for (const act of acts) {
      const [kind, of] = Object.entries(act)[0]!;
      told.push(...await this.acts[kind]!(of));
    }
    return told;
  }

  private at(name: string): string {
    return `${this.place} ${this.scope}${name}`;
  }

  private below(name: string, ctx = this.ctx.scope(name)): Player {
    return new Player(ctx, this.place, `${this.scope}${name}/`);
  }

  private async step(name: string, at = name, options: object = {}): Promise<[string, number]> {
    return [this.at(at), await this.ctx.step(name, effect(this.at(at), 'keyed'), { ...KEYED, ...options })];
  }

  private get dotted(): string {
    return this.scope.replaceAll('/', '.');
  }

  private readonly acts: { [kind: string]: (of: any) => Promise<Told> } = {
    step: async ({ n }) => [await this.step(`s${n}`)],
    fatal: async ({ n }) => {
      try {
        await this.ctx.step(`s${n}`, async a => {
          await effect(this.at(`s${n}`), 'keyed')(a);
          throw fatal('as planned');
        }, KEYED);
      } catch (fail) {
        if (fail instanceof Fail && fail.kind === 'fatal') return [];
        throw fail;
      }
      throw fatal('a step that always fails has succeeded');
    },
    letter: async ({ n }) => [[this.at(`s${n}`), await this.ctx.step(`s${n}`, effect(this.at(`s${n}`), 'blind'), { atMostOnce: true, timeout: PATIENCE })]],
    asked: async ({ n }) => {
      const at = this.at(`s${n}`);
      const reconcile = async (a: Attempt) => await post<number | null>('look-ups', ask(at, 'blind', a), LOOK_UP) ?? undefined;
      return [[at, await this.ctx.step(`s${n}`, effect(at, 'blind'), { ...KEYED, reconcile })]];
    },
    tx: async ({ n }) => {
      const at = this.at(`s${n}`), insert = 'INSERT INTO effects (place, effect_key) VALUES ($1, $2) RETURNING number';
      return [[at, await this.ctx.tx(`s${n}`, pg(pool), async (db, a) => Number((await db.query(insert, [at, a.key])).rows[0].number), { retry: STUBBORN, timeout: TX })]];
    },
    remote: async ({ n }) => {
      const at = this.at(`s${n}`);
      return [[at, await this.ctx.remote<number>(`s${n}`, QUEUE, { at, run: this.ctx.runId } satisfies Remote, KEYED)]];
    },
    repeat: async ({ n, times, indexed }) => {
      const told: Told = [];
      for (let i = 1; i <= times; i++) {
        const at = indexed ? `s${n}${i === 1 ? '' : `#${i}`}` : `s${n}[${i}]`;
        told.push(await this.step(`s${n}`, at, indexed ? { indexed } : { key: i }));
      }
      return told;
    },
    loop: async ({ n, times, acts }) => {
      const told: Told = [];
      for (let i = 0; i < times; i++) told.push(...await this.below(`l${n}-${i}`).all(acts));
      return told;
    },
    join: async ({ n, left, right }) => {
      const both = await this.ctx.all({
        [`left${n}`]: c => this.below(`left${n}`, c).all(left),
        [`right${n}`]: c => this.below(`right${n}`, c).all(right),
      });
      return [...both[`left${n}`]!, ...both[`right${n}`]!];
    },
    race: async ({ n, millis, acts }) => {
      const won = await this.ctx.race(`race${n}`, {
        part: c => this.below(`race${n}`, at(c, `${this.scope}race${n}`)).all(acts),
        limit: c => c.sleep(`limit${n}`, millis),
      });
      return won.winner === 'part' ? won.value as Told : [];
    },
    nap: async ({ n, millis }) => {
      const before = await this.step(`b${n}`);
      await this.ctx.sleep(`nap${n}`, millis);
      return [before, await this.step(`a${n}`)];
    },
    hook: async ({ n, payloads }) => {
      const token = `${this.place}:${this.dotted}h${n}`, hook = this.ctx.hook<number>(token), told: Told = [];
      for (let i = 0; i < payloads; i++) told.push([`${token} ${i}`, await hook.recv()]);
      return told;
    },
    once: async ({ label }) => {
      const name = `once ${label}`;
      return [[name, await this.ctx.runOnce(name, () => post<number>('rates', label, LOOK_UP), { scope: 'workspace' })]];
    },
    child: async ({ n, acts }) => {
      const name = `${this.dotted}${n}`;
      const child = await this.ctx.child<Program, Told>(program, { place: `${this.place}.${name}`, acts }, { key: name });
      return child.result();
    },
  };
}

/** A `ctx` in the same branch of a race, with names as the programs of the proof have them: they do not know the names of branches. */
function at(ctx: Ctx, path: string): Ctx {
  const { run, stand } = ctx as unknown as { run: ConstructorParameters<typeof Ctx>[0]; stand: ConstructorParameters<typeof Ctx>[1] };
  return new Ctx(run, stand, path);
}

const program = workflow<Program, Told>('program', async (ctx, { place, acts }) => {
  try {
    return await new Player(ctx, place).all(acts);
  } catch (fail) {
    if (!(fail instanceof Cancelled)) throw fail;
    for (const part of ['one', 'two']) {
      await ctx.cleanup().step('clean up', effect(`${place} clean up[${part}]`, 'keyed'), { ...KEYED, key: part });
      await ctx.cleanup().sleep(`after ${part}`, 20);
    }
    throw fail;
  }
});

/** What the proof does while it restarts servers: letters that must not be written twice, each of which takes a while. */
const letters = workflow<{ place: string; count: number; millis: number }, Told>('letters', async (ctx, { place, count, millis }) => {
  const told: Told = [];
  for (let n = 0; n < count; n++) {
    const name = `letter${n}`;
    const write = async (a: Attempt): Promise<number> => {
      await new Promise(resolve => setTimeout(resolve, millis));
      for (;;) {
        // The recorder loses answers, and absorbs what it knows.
        const number = await effect(`${place} ${a.path}`, 'keyed')(a).catch(() => undefined);
        if (number !== undefined) return number;
      }
    };
    told.push([name, await ctx.step(name, write, { atMostOnce: true, timeout: '1m' })]);
  }
  return told;
});

async function elsewhere(input: unknown, { key, fence, attempt }: QueueTask): Promise<number> {
  return post<number>('effects', { ...input as Remote, key, fence, attempt, kind: 'keyed' }, PATIENCE);
}

const semel = new Semel({ url: place.server });
for (;;) {
  try {
    // The nemesis knows workers by their process.
    await semel.worker({ workflows: [program, letters], queues: { [QUEUE]: elsewhere }, name: `pid-${process.pid}`, lease }).run();
    break;
  } catch (error) {
    console.error(`there is no server yet: ${(error as Error).message}`);
    await new Promise(resolve => setTimeout(resolve, 100));
  }
}
