import { useIsStaff } from "../app/shell";

/** An identifier of the engine, which the staff uses in commands. Members never see one. */
export function Ident({ id }: { id: string }) {
  return useIsStaff() ? <span className="quiet">{id}</span> : null;
}
