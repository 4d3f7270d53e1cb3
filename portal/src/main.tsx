import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { newQueryClient } from "./api/queries";
import { newRouter } from "./app/router";
import { Language } from "./i18n/text";
import "./styles/index.css";

const page = document.getElementById("page");
if (page) {
  const queries = newQueryClient();
  const router = newRouter();
  createRoot(page).render(
    <StrictMode>
      <Language>
        <QueryClientProvider client={queries}>
          <RouterProvider router={router} />
        </QueryClientProvider>
      </Language>
    </StrictMode>,
  );
}
