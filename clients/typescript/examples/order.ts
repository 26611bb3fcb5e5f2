// An order, from the charge to the parcel. Run it against `semel dev` and a PostgreSQL database with some test data:
//   npm run build && DATABASE_URL=postgres://… node examples/dist/order.js
import pgDriver from 'pg';
import { fatal, Semel, workflow, type Ctx } from '@semel/sdk';
import { pg, pgTable } from '@semel/sdk/pg';

interface Order { id: string; items: string[]; amount: number }
interface Approval { by: string; ok: boolean }

const pool = new pgDriver.Pool({ connectionString: process.env['DATABASE_URL'] });

// The world outside: providers that recognise a key, as Stripe and many others do.
const charges = new Map<string, string>(), letters = new Map<string, string>();
const bank = {
  async charge(cents: number, key: string): Promise<string> {
    if (!charges.has(key)) charges.set(key, `${cents} cents`);
    return charges.get(key)!;
  },
};
const post = {
  async send(order: string, key: string): Promise<string> {
    letters.set(key, `letter for ${order}`);
    return letters.get(key)!;
  },
  find: async (key: string): Promise<string | undefined> => letters.get(key),
};

export const price = workflow('price', async (_ctx, sku: string) => sku.length * 100);

async function ship(ctx: Ctx, what: string): Promise<string> {
  return ctx.step('ship', async () => `${what} shipped`);
}

export const order = workflow('order', { version: '1' }, async (ctx, o: Order) => {
  const charge = await ctx.step('charge', a => bank.charge(o.amount, a.key), { retry: { maxAttempts: 5 }, timeout: '10s' });
  const balance = await ctx.tx('debit', pg(pool, { table: 'shop_fence' }), async db => {    // its rows and its outcome are one COMMIT
    const { rows } = await db.query('UPDATE shop_account SET cents = cents - $1 WHERE cents >= $1 RETURNING cents', [o.amount]);
    if (rows[0] === undefined) throw fatal('not enough money');
    return Number(rows[0].cents);
  });
  const letter = await ctx.step('letter', a => post.send(o.id, a.key), { reconcile: a => post.find(a.key) });
  for (const item of o.items) await ctx.step('pack', async () => `${item} packed`, { key: item });      // pack[ink], pack[pens]
  const rate = await ctx.runOnce('rate', async () => 0.94, { scope: 'workspace', ttl: '1h' });
  await using approval = ctx.hook<Approval>(`approve-${o.id}`);
  const other = await approval.conflict();
  if (other !== undefined) throw fatal(`${other.runId} asks for this order already`);
  const gate = await ctx.race('gate', { answer: () => approval.recv(), patience: c => c.sleep('patience', '7d') });
  if (gate.winner === 'patience' || !gate.value.ok) throw fatal('not approved');
  const { left, right } = await ctx.all({ left: c => ship(c, 'ink'), right: c => ship(c, 'pens') });
  const total = await (await ctx.child(price, o.items[0]!)).result();
  return { charge, balance, letter, rate, by: gate.value.by, left, right, total };
});

await pool.query(pgTable('shop_fence'));
await pool.query('CREATE TABLE IF NOT EXISTS shop_account (cents bigint NOT NULL)');
await pool.query('INSERT INTO shop_account SELECT 5000 WHERE NOT EXISTS (SELECT FROM shop_account)');

const semel = new Semel();                                         // SEMEL_URL and SEMEL_TOKEN
const worker = await semel.worker({ workflows: [order, price] }).start();
const input = { id: '7', items: ['ink', 'pens'], amount: 1999 };
const run = await semel.start(order, input, { key: 'order-7' });
while ((await semel.hook('approve-7')) === undefined) await new Promise(resolve => setTimeout(resolve, 50));
await semel.deliver('approve-7', { by: 'Ada', ok: true }, { id: 'click-1' });
console.log(JSON.stringify(await run.result({ timeout: '30s' })));
console.log((await semel.start(order, input, { key: 'order-7' })).verdict);
await worker.stop();
semel.close();
await pool.end();
