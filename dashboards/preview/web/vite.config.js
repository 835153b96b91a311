import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// Icons are fetched by name when they are drawn, so they are served as they lie in @grafana/ui.
// Its code editor and its maps are loaded only by who shows them, and nobody here does: leaving them out halves the build.
export default defineConfig({
  plugins: [react()],
  publicDir: 'node_modules/@grafana/ui/dist/public',
  build: {
    chunkSizeWarningLimit: 20000,
    minify: false,
    rollupOptions: { external: [/^\/now\.js/, /^monaco-editor/, /^@monaco-editor/, /^ol(\/|$)/] },
  },
});
