import type { components } from "./schema";

type Schemas = components["schemas"];
export type Whoami = Schemas["Whoami"];
export type AccountName = Schemas["AccountName"];
export type Account = Schemas["Account"];
export type User = Schemas["User"];
export type Connection = Schemas["Connection"];
export type Vlans = Schemas["Vlans"];
export type Vlan = Schemas["Vlan"];
export type Service = Schemas["Service"];
export type End = Schemas["End"];
export type Status = Schemas["Status"];
export type Stage = Schemas["Stage"];
export type Hop = Schemas["Hop"];
export type Filter = Schemas["Filter"];
export type Site = Schemas["Site"];
export type Switch = Schemas["Switch"];
export type Trunk = Schemas["Trunk"];
export type Change = Schemas["Change"];
export type AuditEntry = Schemas["AuditEntry"];
export type Ordered = Schemas["Ordered"];
export type Overview = Schemas["Overview"];
export type Task = Schemas["Task"];
export type ApiKey = Schemas["ApiKey"];

/** A page of a collection. */
export type List<T> = { items: T[]; next: string | null; total: number };
