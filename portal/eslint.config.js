import a11y from "eslint-plugin-jsx-a11y";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "src/api/schema.d.ts"] },
  ...tseslint.configs.recommended,
  a11y.flatConfigs.recommended,
  {
    rules: {
      // Focus goes to the field of a search that a key has opened, and the names of React Aria's parts are its own.
      "jsx-a11y/no-autofocus": "off",
      // Virtual rows scroll in a region of their own, which the keyboard must reach.
      "jsx-a11y/no-noninteractive-tabindex": "off",
      // Prettier breaks lines of code; strings, templates and comments are left to people.
      "max-len": ["error", { code: 120, ignoreStrings: false, ignoreTemplateLiterals: false, ignoreComments: false }],
    },
  },
  {
    files: ["tests/journeys/**", "tests/*.mjs", "scripts/**"],
    rules: { "@typescript-eslint/no-unused-expressions": ["error", { allowShortCircuit: true, allowTernary: true }] },
  },
);
