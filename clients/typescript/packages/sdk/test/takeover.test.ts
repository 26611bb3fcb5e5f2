import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { workflow, type StartedRun } from '../src/index.js';
import { effectKey } from '../src/keys.js';
import { TestServer } from '../src/testing.js';

/** A run whose worker process was killed inside the body of a step, and the key that the body was given. */
async function abandoned(server: TestServer, semel: ReturnType<TestServer['client']>, atMostOnce: boolean): Promise<{ run: StartedRun<string>; key: string }> {
  const program = fileURLToPath(new URL('victim.js', import.meta.url));
  const worker = spawn(process.execPath, [program], { env: { ...process.env, SEMEL_URL: server.url }, stdio: ['ignore', 'pipe', 'inherit'] });
  const run = await semel.start<boolean, string>('victim', atMostOnce);
  const [key] = await once(createInterface({ input: worker.stdout }), 'line') as [string];
  const gone = once(worker, 'exit');
  worker.kill('SIGKILL');
  await gone;
  return { run, key };
}

for (const atMostOnce of [false, true]) {
  const what = atMostOnce ? 'put in doubt, and not repeated' : 'repeated under the same key';
  test(`a step of a killed process is ${what} when the lease has ended`, async () => {
    await using server = await TestServer.start({ clock: 'manual' });
    const semel = server.client(), calls: string[] = [];
    const { run, key } = await abandoned(server, semel, atMostOnce);
    assert.equal(key, effectKey({ workspace: `ws_${'0'.repeat(26)}`, lineage: run.id, path: 'charge', tick: 1, label: '' }));
    const same = workflow('victim', async ctx => ctx.step('charge', a => { calls.push(a.key); return 'charged'; }, { atMostOnce }));
    // The dead process has released nothing: until its lease ends, the run is its own.
    const early = await semel.worker({ workflows: [same], lease: '1h' }).start();
    await server.advance('9s');
    assert.deepEqual([(await run.get()).status, calls], ['RUNNING', []]);
    await early.stop();
    await server.advance('1m');
    await using worker = semel.worker({ workflows: [same], lease: '1h', log: () => undefined });
    await worker.start();
    if (atMostOnce) {
      while ((await run.get()).status !== 'PAUSED') await new Promise(resolve => setImmediate(resolve));
      await run.resolve('charge', { happened: 'charged' });
    }
    assert.equal(await run.result({ timeout: '30s' }), 'charged');
    assert.deepEqual(calls, atMostOnce ? [] : [key]);
    semel.close();
  });
}
