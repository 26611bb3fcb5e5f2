// A worker process that is killed inside the body of a step: it writes the effect key of the step to its standard output, and never ends.
import { Semel, workflow } from '../src/index.js';
import { never } from '../src/run.js';

const victim = workflow('victim', async (ctx, atMostOnce: boolean) => ctx.step('charge', a => {
  process.stdout.write(`${a.key}\n`);
  return never<string>();
}, { atMostOnce }));

await new Semel().worker({ workflows: [victim], lease: '10s' }).run();
