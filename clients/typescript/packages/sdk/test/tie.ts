// A race whose branches end at the same moment, so that both are recorded: only the recorded winner makes a replay decide alike.
import { workflow, type RunHandle } from '../src/index.js';
import { crashEverywhere, TestServer } from '../src/testing.js';

async function ticks(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await null;
}

/** Plays it with a crash at every boundary, and gives their number. What is wrong is thrown. */
export async function playTie(): Promise<number> {
  await using server = await TestServer.start();
  const semel = server.client();
  let after = new Set<string>();
  let open = () => undefined as void, gate = Promise.resolve();
  const tie = workflow('tie', async ctx => {
    const { winner } = await ctx.race('tie', {
      a: async c => {
        await c.step('a', () => gate);
        await ticks(10);
      },
      // It begins late in a replay too, where it would lose: the body of `a` has ended long before.
      b: async c => {
        await ticks(100);
        await c.step('b', () => open());
      },
    });
    await ctx.step(`after ${winner}`, () => { after.add(winner); });
    await ctx.step('end', () => undefined);
    return winner;
  });
  /** A run that is paused does not fit its code; it would never end. */
  const watch = async (run: RunHandle) => {
    for (;;) {
      const { status, endedAt } = await run.get();
      if (status === 'PAUSED') await run.cancel('it has decided otherwise in a replay');
      if (endedAt !== undefined) return;
    }
  };
  try {
    return await crashEverywhere({
      semel,
      worker: () => {
        gate = new Promise(resolve => { open = resolve; });
        return { workflows: [tie], lease: '30s' };
      },
      start: play => {
        after = new Set();
        return semel.start(tie, null, { key: play });
      },
      during: (_, run) => watch(run),
      check: (run, boundary) => {
        if (run.status === 'COMPLETED' && after.size === 1 && after.has(run.result as string)) return;
        throw new Error(`a crash ${boundary}: the race is ${run.status} with ${run.result}, and went on after ${[...after]}`);
      },
    });
  } finally {
    semel.close();
  }
}
