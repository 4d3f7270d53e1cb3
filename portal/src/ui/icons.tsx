import type { ReactNode } from "react";

function Icon({ children, size = 16 }: { children: ReactNode; size?: number }) {
  return (
    <svg
      viewBox="0 0 16 16"
      width={size}
      height={size}
      fill="none"
      stroke="currentColor"
      strokeWidth="1.6"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      {children}
    </svg>
  );
}

/* The shapes of states differ, so that colour is never the only sign. */
export const StateOk = () => (
  <Icon>
    <circle cx="8" cy="8" r="7" fill="currentColor" stroke="none" />
  </Icon>
);
export const StateWait = () => (
  <Icon>
    <circle cx="8" cy="8" r="6" />
    <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" stroke="none" />
  </Icon>
);
export const StateBad = () => (
  <Icon>
    <path d="M8 1 15 14.5H1z" fill="currentColor" stroke="none" />
  </Icon>
);
export const StateOff = () => (
  <Icon>
    <rect x="2.5" y="2.5" width="11" height="11" rx="2" />
  </Icon>
);

export const ChevronDown = () => (
  <Icon>
    <path d="m4 6 4 4 4-4" />
  </Icon>
);
export const ChevronRight = () => (
  <Icon>
    <path d="m6 4 4 4-4 4" />
  </Icon>
);
export const Menu = () => (
  <Icon size={18}>
    <path d="M2 4h12M2 8h12M2 12h12" />
  </Icon>
);
export const Search = () => (
  <Icon>
    <circle cx="7" cy="7" r="4.5" />
    <path d="m10.5 10.5 4 4" />
  </Icon>
);
export const Close = () => (
  <Icon>
    <path d="m4 4 8 8M12 4l-8 8" />
  </Icon>
);
export const Info = () => (
  <Icon>
    <circle cx="8" cy="8" r="6.5" />
    <path d="M8 7.5V11M8 5v.01" />
  </Icon>
);
export const Warning = () => (
  <Icon>
    <path d="M8 2 14.8 14H1.2z" />
    <path d="M8 6.5v3M8 11.7v.01" />
  </Icon>
);
export const Check = () => (
  <Icon>
    <path d="m3 8.5 3.2 3.2L13 5" />
  </Icon>
);
export const Lock = () => (
  <Icon>
    <rect x="3" y="7" width="10" height="7" rx="1.5" />
    <path d="M5 7V5a3 3 0 0 1 6 0v2" />
  </Icon>
);
export const Clock = () => (
  <Icon>
    <circle cx="8" cy="8" r="6.5" />
    <path d="M8 4.5V8l2.5 1.5" />
  </Icon>
);
