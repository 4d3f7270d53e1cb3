/// <reference types="vitest/config" />
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The page is served from one origin under a policy without inline code, so nothing is inlined: no data: URLs, no
// inline scripts.
export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        // Small modules that every first load needs share one file: each file costs the headers of a response.
        codeSplitting: {
          groups: [
            {
              name: "frame",
              test: /portal\/src\/ui\/(words|held)\.tsx?$|@tanstack\/(react-router|react-store|router-core|history)\//,
            },
          ],
        },
      },
    },
  },
  worker: { format: "es" },
  test: {
    environment: "jsdom",
    include: ["tests/unit/**/*.test.{ts,tsx}"],
    setupFiles: ["tests/unit/setup.ts"],
    pool: "threads",
    // A bound for a test that hangs: a loaded machine takes seconds for a render.
    testTimeout: 30_000,
    css: false,
  },
});
