import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// Icons are fetched by name when they are drawn, so they are served as they lie in @grafana/ui.
export default defineConfig({
  plugins: [react()],
  publicDir: 'node_modules/@grafana/ui/dist/public',
  build: { chunkSizeWarningLimit: 20000, rollupOptions: { external: ['/now.js'] } },
});
