import { statements, TABLE, type FenceRow, type OpenTx, type TxSource } from './tx.js';

/** What of node-postgres is used: a `Pool`. */
export interface PgPool<C extends PgClient = PgClient> {
  connect(): Promise<C>;
}

/** A client of a pool. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<{ rows: any[]; rowCount: number | null }>;
  release(destroy?: boolean | Error): void;
  on(event: 'error', listener: () => void): unknown;
  removeListener(event: 'error', listener: () => void): unknown;
}

/** Hears that a connection broke between two statements: the next one fails, and without a listener the process would end. */
const heard = () => undefined;

/** A transaction that its client has left alone is ended by the server, so that its locks do not outlive a dead worker. */
const LEFT_ALONE = '10s';

/** A value, and on the way the limit of how long the transaction may be left alone, unless the session has one of its own. */
export function guarded(step: string): string {
  const setting = "'idle_in_transaction_session_timeout'";
  return `CASE WHEN current_setting(${setting}) = '0' AND set_config(${setting}, '${LEFT_ALONE}', true) IS NULL THEN '' ELSE ${step} END`;
}

/** PostgreSQL by node-postgres, for `ctx.tx`. The fence table must exist: its statement is `pgTable()`. */
export function pg<C extends PgClient>(pool: PgPool<C>, options: { table?: string } = {}): TxSource<C> {
  const { find, put } = statements(options.table ?? TABLE, n => `$${n}`, guarded);
  return {
    async begin(): Promise<OpenTx<C>> {
      const client = await pool.connect();
      client.on('error', heard);
      const release = (destroy: boolean) => {
        client.removeListener('error', heard);
        client.release(destroy);
      };
      let over = false;
      const end = async (how: 'COMMIT' | 'ROLLBACK') => {
        if (over) return;
        over = true;
        try {
          await client.query(how);
          release(false);
        } catch (lost) {
          // Whether it took place is unknown: the connection is not used again.
          release(true);
          throw lost;
        }
      };
      try {
        await client.query('BEGIN');
      } catch (refused) {
        release(true);
        throw refused;
      }
      return {
        db: client,
        async find(key): Promise<FenceRow | undefined> {
          const { rows } = await client.query(find, [key]);
          const row = rows[0] as { run_id: string; fence: string; attempt: string; outcome: string | null } | undefined;
          return row && { run: row.run_id, fence: Number(row.fence), attempt: Number(row.attempt), outcome: row.outcome };
        },
        async put(mark, outcome) {
          const { rowCount } = await client.query(put, [mark.key, mark.run, mark.step, mark.fence, mark.attempt, outcome]);
          return (rowCount ?? 0) > 0;
        },
        commit: () => end('COMMIT'),
        rollback: () => end('ROLLBACK'),
      };
    },
  };
}

/** The statement that makes the fence table. */
export function pgTable(table: string = TABLE): string {
  statements(table, String);
  return `CREATE TABLE IF NOT EXISTS ${table} (effect_key text PRIMARY KEY, run_id text NOT NULL, step text NOT NULL, fence bigint NOT NULL, `
    + 'attempt bigint NOT NULL, outcome text, created timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, settled timestamptz)';
}
