import { fatal } from './errors.js';
import { statements, TABLE, type FenceRow, type OpenTx, type TxSource } from './tx.js';

/** What of better-sqlite3 and of node:sqlite is used. */
export interface SqliteDb {
  exec(sql: string): unknown;
  prepare(sql: string): { get(...values: any[]): unknown; run(...values: any[]): { changes: number | bigint } };
}

/** @internal The parameters have names: numbered ones are bound by position in node:sqlite only. */
export const sqliteStatements = (table: string = TABLE): { find: string; put: string } => statements(table, n => `:p${n}`);

/** The values of the parameters 1, 2, 3 … */
function bound(...values: unknown[]): object {
  return Object.fromEntries(values.map((value, i) => [`p${i + 1}`, value]));
}

/**
 * SQLite by better-sqlite3 or node:sqlite, for `ctx.tx`. A connection has one transaction, so steps take turns, and the body must
 * not wait: a promise is refused. The fence table must exist: its statement is `sqliteTable()`.
 */
export function sqlite<D extends SqliteDb>(db: D, options: { table?: string } = {}): TxSource<D> {
  const { find, put } = sqliteStatements(options.table);
  let turn: Promise<void> = Promise.resolve();
  return {
    async begin(): Promise<OpenTx<D>> {
      let leave!: () => void;
      const before = turn;
      turn = new Promise(resolve => { leave = resolve; });
      await before;
      let over = false;
      const end = (how: string) => {
        if (over) return;
        over = true;
        try {
          db.exec(how);
        } finally {
          leave();
        }
      };
      try {
        db.exec('BEGIN IMMEDIATE');
      } catch (refused) {
        leave();
        throw refused;
      }
      return {
        db,
        async find(key): Promise<FenceRow | undefined> {
          const row = db.prepare(find).get(bound(key)) as { run_id: string; fence: number; attempt: number; outcome: string | null } | undefined;
          return row && { run: row.run_id, fence: Number(row.fence), attempt: Number(row.attempt), outcome: row.outcome };
        },
        async put(mark, outcome) {
          return Number(db.prepare(put).run(bound(mark.key, mark.run, mark.step, mark.fence, mark.attempt, outcome)).changes) > 0;
        },
        commit: async () => end('COMMIT'),
        rollback: async () => end('ROLLBACK'),
        check(value) {
          if (value instanceof Promise) throw fatal('the body of a transactional step on SQLite must not be async: others use the same connection meanwhile');
        },
      };
    },
  };
}

/** The statement that makes the fence table. */
export function sqliteTable(table: string = TABLE): string {
  statements(table, String);
  return `CREATE TABLE IF NOT EXISTS ${table} (effect_key TEXT PRIMARY KEY, run_id TEXT NOT NULL, step TEXT NOT NULL, fence INTEGER NOT NULL, `
    + 'attempt INTEGER NOT NULL, outcome TEXT, created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, settled TEXT) WITHOUT ROWID';
}
