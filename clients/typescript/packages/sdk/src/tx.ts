import { Attempt, type StepDriver } from './ctx.js';
import { Fail, failOf, fatal } from './errors.js';
import { encode } from './json.js';
import { never } from './run.js';

/** Name of the fence table in the user's database, if no other is given. */
export const TABLE = 'fenced_task_idempotency_lock';

/** Identity of one try: a later claim, or a later attempt under the same claim, supersedes it. */
export interface Mark {
  key: string;
  run: string;
  step: string;
  fence: number;
  attempt: number;
}

/** The row under an effect key. */
export interface FenceRow {
  run: string;
  fence: number;
  attempt: number;
  /** Outcome as JSON text; null while there is none. */
  outcome: string | null;
}

/** One open transaction of the user's database. */
export interface OpenTx<Db> {
  /** What the body of the step gets. */
  db: Db;
  find(key: string): Promise<FenceRow | undefined>;
  /** Writes the mark, with an outcome or without one; false if a later mark or an outcome is there already. */
  put(mark: Mark, outcome: string | null): Promise<boolean>;
  commit(): Promise<void>;
  rollback(): Promise<void>;
  /** Refuses what the body has returned, before it is waited for. */
  check?(value: unknown): void;
}

/** A user's database, as `ctx.tx` needs it. */
export interface TxSource<Db> {
  begin(): Promise<OpenTx<Db>>;
}

/** Between two questions to a database that cannot be reached. */
const PAUSE = 100;

type Held = { adopt: string } | 'run' | 'superseded';

/** What a try has to do, given the row under its key. An outcome counts, whichever run wrote it. */
function decide(mark: Mark, row: FenceRow | undefined): Held {
  if (row === undefined) return 'run';
  if (row.outcome !== null) return { adopt: row.outcome };
  const later = row.fence > mark.fence || (row.fence === mark.fence && row.attempt > mark.attempt);
  return row.run === mark.run && later ? 'superseded' : 'run';
}

/** One attempt at a transactional step: the body's rows, the mark and the outcome in one commit, or nothing of it. */
export async function performTx<Db, T>(
  step: StepDriver<T>,
  source: TxSource<Db>,
  number: number,
  body: (db: Db, attempt: Attempt) => Promise<T> | T,
): Promise<void> {
  const { run, visit } = step;
  const active = await run.effect(step.stand, visit);
  const began = run.host.earliest();
  const attempt = new Attempt(run, visit, number, active.abort.signal);
  const mark: Mark = { key: attempt.key, run: run.id, step: visit, fence: attempt.fence, attempt: number };
  await run.host.probe?.(run.id, `before the body of ${visit}`);
  const result = await tried(step, source, mark, async open => {
    const work = () => {
      const value = body(open.db, attempt);
      open.check?.(value);
      return value;
    };
    return encode(await run.call(active, step.timeout, work));
  });
  await run.host.probe?.(run.id, `after the body of ${visit}`);
  if (!run.over(active) || result === 'superseded') return never();
  step.finish(number, { attempt: number, class: 'tx', at: began }, result);
}

async function tried<Db, T>(
  step: StepDriver<T>,
  source: TxSource<Db>,
  mark: Mark,
  body: (open: OpenTx<Db>) => Promise<string>,
): Promise<{ text: string } | { fail: Fail } | 'superseded'> {
  let open: OpenTx<Db>;
  try {
    // An earlier owner may still be in its body: with our mark there, it can no longer commit.
    if (step.run.claim.claims > 1) await raise(source, mark);
    open = await source.begin();
  } catch (refused) {
    return { fail: failOf(refused) };
  }
  let text: string;
  try {
    const held = decide(mark, await open.find(mark.key));
    if (held !== 'run') {
      await open.rollback();
      return held === 'superseded' ? held : { text: held.adopt };
    }
    text = await body(open);
  } catch (thrown) {
    await open.rollback().catch(() => undefined);
    return { fail: failOf(thrown) };
  }
  let why: Fail;
  try {
    if (await open.put(mark, text)) {
      await open.commit();
      return { text };
    }
    await open.rollback();
    why = fatal('a later attempt has taken its place');
  } catch (lost) {
    await open.rollback().catch(() => undefined);
    why = failOf(lost);
  }
  return ask(step, source, { ...mark, attempt: mark.attempt + 1 }, why);
}

/** Asks what became of a try: its mark is shut out first, so that the answer stays true. */
async function ask<Db, T>(step: StepDriver<T>, source: TxSource<Db>, next: Mark, why: Fail): Promise<{ text: string } | { fail: Fail } | 'superseded'> {
  for (;;) {
    try {
      await raise(source, next);
      const open = await source.begin();
      const held = decide(next, await open.find(next.key).finally(() => open.rollback()));
      if (held === 'run') return { fail: why };
      return held === 'superseded' ? held : { text: held.adopt };
    } catch (unreachable) {
      if (step.run.isGone) return never();
      step.run.host.log('warn', `it is unknown whether ${step.visit} of ${step.run.id} has committed; asking again: ${failOf(unreachable).message}`);
      await new Promise(resolve => setTimeout(resolve, PAUSE));
    }
  }
}

async function raise<Db>(source: TxSource<Db>, mark: Mark): Promise<void> {
  const open = await source.begin();
  try {
    await open.put(mark, null);
    await open.commit();
  } catch (refused) {
    await open.rollback().catch(() => undefined);
    throw refused;
  }
}

/** The statements of the fence table. `place` writes the n-th parameter. */
export function statements(table: string, place: (n: number) => string, guard: (step: string) => string = step => step): { find: string; put: string } {
  if (!/^([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*$/.test(table)) {
    throw new RangeError(`${JSON.stringify(table)} is no name for a fence table: give letters, digits and _, perhaps with a schema and a dot`);
  }
  const [key, run, step, fence, attempt, value] = [1, 2, 3, 4, 5, 6].map(place) as [string, string, string, string, string, string];
  const outcome = `CAST(${value} AS text)`;
  return {
    find: `SELECT run_id, fence, attempt, outcome FROM ${table} WHERE effect_key = ${key}`,
    put: `INSERT INTO ${table} AS held (effect_key, run_id, step, fence, attempt, outcome, settled) VALUES (${key}, ${run}, ${guard(step)}, ${fence}, ${attempt}, ${outcome}, `
      + `CASE WHEN ${outcome} IS NULL THEN NULL ELSE CURRENT_TIMESTAMP END) `
      + 'ON CONFLICT (effect_key) DO UPDATE SET run_id = excluded.run_id, step = excluded.step, fence = excluded.fence, attempt = excluded.attempt, '
      + 'outcome = excluded.outcome, settled = excluded.settled WHERE held.outcome IS NULL AND (held.run_id <> excluded.run_id '
      + 'OR held.fence < excluded.fence OR (held.fence = excluded.fence AND held.attempt <= excluded.attempt))',
  };
}
