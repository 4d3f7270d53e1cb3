//! The object `modbus`: a request of Modbus and its answer (Modbus Application Protocol V1.1b3).

use millrace_ips_engine::app::record::{ModbusMessage, ModbusRecord};

use crate::object::Object;
use crate::text::text;

/// The high bit of the function code of an exception.
const EXCEPTION: u8 = 0x80;
const DIAGNOSTIC: u8 = 8;
const ENCAPSULATED: u8 = 43;

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

/// The tables that a function reads or writes, by the words that EVE has for them.
const COILS: &str = "COILS";
const DISCRETES: &str = "DISCRETES";
const INPUT: &str = "INPUT";
const HOLDING: &str = "HOLDING";

/// The public functions: code, name, and the words of its access.
const FUNCTIONS: [(u8, &str, &[&str]); 24] = [
    (1, "RdCoils", &["READ", COILS]),
    (2, "RdDiscreteInputs", &["READ", DISCRETES]),
    (3, "RdHoldRegs", &["READ", HOLDING]),
    (4, "RdInputRegs", &["READ", INPUT]),
    (5, "WrSingleCoil", &["WRITE", COILS, "SINGLE"]),
    (6, "WrSingleReg", &["WRITE", HOLDING, "SINGLE"]),
    (7, "RdExcStatus", &[]),
    (DIAGNOSTIC, "Diagnostic", &[]),
    (9, "Program484", &[]),
    (10, "Poll484", &[]),
    (11, "GetCommEventCtr", &[]),
    (12, "GetCommEventLog", &[]),
    (13, "ProgramController", &[]),
    (14, "PollController", &[]),
    (15, "WrMultCoils", &["WRITE", COILS, "MULTIPLE"]),
    (16, "WrMultRegs", &["WRITE", HOLDING, "MULTIPLE"]),
    (17, "ReportServerID", &[]),
    (19, "ResetCommLink", &[]),
    (20, "RdFileRec", &[]),
    (21, "WrFileRec", &[]),
    (22, "MaskWrReg", &["WRITE", HOLDING]),
    (23, "RdWrMultRegs", &["READ", "WRITE", HOLDING, "MULTIPLE"]),
    (24, "RdFIFOQueue", &[]),
    (ENCAPSULATED, "MEI", &[]),
];

/// The functions of section 5.1 that are assigned; the rest of [`FUNCTIONS`] are those of old devices.
const RESERVED: [u8; 6] = [9, 10, 13, 14, 18, 19];

/// Names of the sub-functions of the diagnostic (section 6.8.1), as EVE has them; the numbers between are reserved.
const SUBFUNCTIONS: [(u16, &str); 17] = [
    (0, "RetQueryData"),
    (1, "RestartCommOpt"),
    (2, "RetDiagReg"),
    (3, "ChangeInputDelimiter"),
    (4, "ForceListenOnlyMode"),
    (10, "ClearCtrDiagReg"),
    (11, "RetBusMsgCount"),
    (12, "RetBusCommErrCount"),
    (13, "RetBusExcErrCount"),
    (14, "RetServerMsgCount"),
    (15, "RetServerNoRespCount"),
    (16, "RetServerNAKCount"),
    (17, "RetServerBusyCount"),
    (18, "RetBusCharOverrunCount"),
    (19, "RetOverrunErrCount"),
    (20, "ClearOverrunCounterFlag"),
    (21, "GetClearPlusStats"),
];

/// Names of the types of the encapsulated interface (section 6.19).
const INTERFACES: [(u8, &str); 2] = [(0x0d, "CANOpenGenRefReqResp"), (0x0e, "RdDevId")];

/// Names of exception codes (section 7).
const EXCEPTIONS: [(u8, &str); 10] = [
    (1, "IllegalFunction"),
    (2, "IllegalDataAddr"),
    (3, "IllegalDataValue"),
    (4, "ServerDeviceFail"),
    (5, "Ack"),
    (6, "ServerDeviceBusy"),
    (7, "NegAck"),
    (8, "MemParityErr"),
    (10, "GatewayPathUnavailable"),
    (11, "GatewayTargetFailToResp"),
];

/// Writes the request and the response of a transaction.
pub(crate) fn messages(out: &mut Object<'_>, fields: &ModbusRecord, transaction: Option<u64>) {
    if let Some(transaction) = transaction {
        out.field("id", transaction.saturating_add(1));
    }
    let sides = [("request", Side::Request), ("response", Side::Response)];
    for ((name, side), message) in sides.into_iter().zip(&fields.messages) {
        if let Some(message) = message {
            out.object(name, |out| write(out, fields.identifier, message, side));
        }
    }
}

fn write(out: &mut Object<'_>, identifier: u16, message: &ModbusMessage, side: Side) {
    let code = message.function & !EXCEPTION;
    let known = FUNCTIONS.iter().find(|(known, ..)| *known == code);
    let is_exception = message.function & EXCEPTION != 0;
    let access = known.map_or(&[][..], |(_, _, access)| access).join(" | ");
    let access = Some(access).filter(|access| !access.is_empty() && !is_exception);
    out.field("transaction_id", identifier)
        .field("protocol_id", message.protocol)
        .field("unit_id", message.unit)
        .field("function_raw", message.function)
        .field("function_code", known.map_or("Unknown", |(_, name, _)| name))
        .field("access_type", access.as_deref().unwrap_or("NONE"))
        .field("category", category(code, known.is_some()))
        .field("error_flags", error_flags(message, known.is_some(), side));
    data(out, message, side);
}

/// Returns the category of a function code (section 5).
fn category(code: u8, is_known: bool) -> &'static str {
    match code {
        0 => "NONE",
        _ if RESERVED.contains(&code) => "RESERVED",
        _ if is_known => "PUBLIC_ASSIGNED",
        9..15 | 41..43 | 90..92 | 125..128 => "RESERVED",
        65..73 | 100..111 => "USER_DEFINED",
        _ => "PUBLIC_UNASSIGNED",
    }
}

/// Returns the faults of a message that its fields show.
fn error_flags(message: &ModbusMessage, is_known: bool, side: Side) -> String {
    let mut flags = Vec::new();
    let is_exception = message.function & EXCEPTION != 0;
    let is_code = |code: &u8| EXCEPTIONS.iter().any(|(known, _)| known == code);
    if !has_right_size(message, side) {
        flags.push("DATA_LENGTH");
    }
    if is_exception && !message.data.first().is_some_and(is_code) {
        flags.push("EXC_CODE");
    }
    if !is_known {
        flags.push("FUNC_CODE");
    }
    if message.protocol != 0 {
        flags.push("PROTO_ID");
    }
    match flags.is_empty() {
        true => "NONE".to_owned(),
        false => flags.join(" | "),
    }
}

/// Returns false if the data of a message are not as long as its function and its fields say (sections 6 and 7).
fn has_right_size(message: &ModbusMessage, side: Side) -> bool {
    let data = &message.data;
    let counted = |at: usize| {
        data.get(at)
            .is_some_and(|size| usize::from(*size) == data.len() - at - 1)
    };
    match (message.function, side) {
        (function, _) if function & EXCEPTION != 0 => data.len() == 1,
        (1..=4, Side::Request) => data.len() == 4,
        (1..=4 | 23, Side::Response) => counted(0),
        (5 | 6, _) | (15 | 16, Side::Response) => data.len() == 4,
        (15 | 16, Side::Request) => counted(4),
        (22, _) => data.len() == 6,
        (23, Side::Request) => counted(8),
        _ => true,
    }
}

/// Writes the data of a message by the meaning that its function gives them; bytes without one as text.
fn data(out: &mut Object<'_>, message: &ModbusMessage, side: Side) {
    let bytes = &message.data[..];
    let word = |at: usize| {
        let two = bytes.get(at..at + 2)?;
        Some(u16::from_be_bytes([two[0], two[1]]))
    };
    let number = |out: &mut Object<'_>, name: &str, value: Option<u16>| {
        if let Some(value) = value {
            out.field(name, value);
        }
    };
    match (message.function, side) {
        (function, _) if function & EXCEPTION != 0 => {
            let Some(code) = bytes.first() else { return };
            let known = EXCEPTIONS.iter().find(|(known, _)| known == code);
            out.object("exception", |out| {
                out.field("raw", code)
                    .field("code", known.map_or("Unknown", |(_, name)| name));
            });
        }
        (1..=4, Side::Request) => {
            out.object("read", |out| {
                number(out, "address", word(0));
                number(out, "quantity", word(2));
            });
        }
        (1..=4 | 23, Side::Response) => {
            out.object("read", |out| {
                out.field("data", text(bytes.get(1..).unwrap_or_default()));
            });
        }
        (5 | 6, _) | (15 | 16, Side::Response) => {
            out.object("write", |out| {
                number(out, "address", word(0));
                number(out, "data", word(2));
            });
        }
        (15 | 16, Side::Request) => {
            out.object("write", |out| {
                number(out, "address", word(0));
                number(out, "quantity", word(2));
                out.field("data", text(bytes.get(5..).unwrap_or_default()));
            });
        }
        (22, _) => {
            out.object("write", |out| {
                number(out, "address", word(0));
                number(out, "and_mask", word(2));
                number(out, "or_mask", word(4));
            });
        }
        (23, Side::Request) => {
            out.object("read", |out| {
                number(out, "address", word(0));
                number(out, "quantity", word(2));
            })
            .object("write", |out| {
                number(out, "address", word(4));
                number(out, "quantity", word(6));
                out.field("data", text(bytes.get(9..).unwrap_or_default()));
            });
        }
        (DIAGNOSTIC, _) => {
            let Some(raw) = word(0) else { return };
            let known = SUBFUNCTIONS.iter().find(|(known, _)| *known == raw);
            out.object("diagnostic", |out| {
                out.field("raw", raw)
                    .field("code", known.map_or("Reserved", |(_, name)| name));
                out.field("data", text(bytes.get(2..).unwrap_or_default()));
            });
        }
        (ENCAPSULATED, _) => {
            let Some((kind, rest)) = bytes.split_first() else {
                return;
            };
            let known = INTERFACES.iter().find(|(known, _)| known == kind);
            out.object("mei", |out| {
                out.field("raw", kind)
                    .field("code", known.map_or("Unknown", |(_, name)| name))
                    .field("data", text(rest));
            });
        }
        _ => {
            out.unless_empty("data", bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(messages: [Option<(u8, &[u8])>; 2]) -> Value {
        let record = ModbusRecord {
            identifier: 7,
            messages: messages.map(|message| {
                message.map(|(function, data)| ModbusMessage {
                    protocol: 0,
                    unit: 1,
                    function,
                    data: data.to_vec(),
                })
            }),
        };
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        super::messages(&mut object, &record, Some(0));
        object.end();
        serde_json::from_slice(&out).unwrap()
    }

    // The examples of Modbus Application Protocol V1.1b3, sections 6.3, 6.12, 6.16 and 7.
    #[test]
    fn a_read_has_address_quantity_and_data() {
        let object = written([Some((3, b"\0\x6b\0\x03")), Some((3, b"\x06abcdef"))]);
        assert_eq!(
            object["request"],
            json!({
                "transaction_id": 7, "protocol_id": 0, "unit_id": 1, "function_raw": 3, "function_code": "RdHoldRegs",
                "access_type": "READ | HOLDING", "category": "PUBLIC_ASSIGNED", "error_flags": "NONE",
                "read": {"address": 107, "quantity": 3},
            })
        );
        assert_eq!(object["response"]["read"], json!({"data": "abcdef"}));
        assert_eq!(object["id"], 1);
    }

    #[test]
    fn writes_have_what_their_function_says() {
        let object = written([Some((16, b"\0\x01\0\x02\x04abcd")), Some((16, b"\0\x01\0\x02"))]);
        assert_eq!(
            object["request"]["write"],
            json!({"address": 1, "quantity": 2, "data": "abcd"})
        );
        assert_eq!(object["request"]["access_type"], "WRITE | HOLDING | MULTIPLE");
        assert_eq!(object["response"]["write"], json!({"address": 1, "data": 2}));
        let mask = written([Some((22, b"\0\x04\0\xf2\0\x25")), None]);
        assert_eq!(
            mask["request"]["write"],
            json!({"address": 4, "and_mask": 0xf2, "or_mask": 0x25})
        );
    }

    #[test]
    fn subfunctions_and_interfaces_have_names() {
        let of = |function, data: &[u8]| written([Some((function, data)), None])["request"].take();
        assert_eq!(
            of(DIAGNOSTIC, b"\0\x04\0\0")["diagnostic"],
            json!({"raw": 4, "code": "ForceListenOnlyMode", "data": "\0\0"})
        );
        assert_eq!(of(DIAGNOSTIC, b"\0\x05")["diagnostic"]["code"], "Reserved");
        assert_eq!(of(DIAGNOSTIC, b"\0").get("diagnostic"), None);
        assert_eq!(
            of(ENCAPSULATED, b"\x0e\x01\0")["mei"],
            json!({"raw": 14, "code": "RdDevId", "data": "\u{1}\0"})
        );
        assert_eq!(of(ENCAPSULATED, b"\x01")["mei"]["code"], "Unknown");
    }

    #[test]
    fn exceptions_and_faults_have_names() {
        let object = written([Some((1, b"\x04")), Some((0x81, b"\x02"))]);
        assert_eq!(
            object["response"]["exception"],
            json!({"raw": 2, "code": "IllegalDataAddr"})
        );
        assert_eq!(object["response"]["error_flags"], "NONE");
        assert_eq!(object["request"]["error_flags"], "DATA_LENGTH");
        let unknown = written([Some((70, b"xy")), Some((0xc6, b"\xee"))]);
        assert_eq!(unknown["request"]["category"], "USER_DEFINED");
        assert_eq!(unknown["request"]["data"], "xy");
        assert_eq!(unknown["response"]["error_flags"], "EXC_CODE | FUNC_CODE");
    }
}
