//! Numbers that JSON cannot express. `serde_json` writes `null` for them, but a stored value must be the value given.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// Refuses a value with a number in it that is infinite, or none.
pub(super) fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), NotFinite> {
    value.serialize(Finite)
}

/// Why a value was refused.
#[derive(Debug)]
pub(super) struct NotFinite(String);

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFinite {}

impl ser::Error for NotFinite {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// A serializer that looks at every number, and writes nothing.
#[derive(Clone, Copy)]
struct Finite;

/// Values that cannot be infinite numbers.
macro_rules! plain {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, _: $type) -> Result<(), NotFinite> {
            Ok(())
        })*
    };
}

impl Serializer for Finite {
    type Ok = ();
    type Error = NotFinite;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    plain! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
        serialize_unit_struct: &'static str
    }

    fn serialize_f32(self, number: f32) -> Result<(), NotFinite> {
        self.serialize_f64(number.into())
    }

    fn serialize_f64(self, number: f64) -> Result<(), NotFinite> {
        match number.is_finite() {
            true => Ok(()),
            false => Err(NotFinite(format!("{number} is no number that JSON can say"))),
        }
    }

    fn serialize_none(self) -> Result<(), NotFinite> {
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), NotFinite> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), NotFinite> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), NotFinite> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotFinite> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotFinite> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotFinite> {
        Ok(self)
    }
}

/// Compound values: each part is looked at.
macro_rules! parts {
    ($($trait:ident: $($method:ident($($name:ident)?)),+;)*) => {
        $(impl ser::$trait for Finite {
            type Ok = ();
            type Error = NotFinite;

            $(parts!(@ $method $($name)?);)+

            fn end(self) -> Result<(), NotFinite> {
                Ok(())
            }
        })*
    };
    (@ $method:ident) => {
        fn $method<T: Serialize + ?Sized>(&mut self, part: &T) -> Result<(), NotFinite> {
            part.serialize(*self)
        }
    };
    (@ $method:ident name) => {
        fn $method<T: Serialize + ?Sized>(&mut self, _: &'static str, part: &T) -> Result<(), NotFinite> {
            part.serialize(*self)
        }
    };
}

parts! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeMap: serialize_key(), serialize_value();
    SerializeStruct: serialize_field(name);
    SerializeStructVariant: serialize_field(name);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::rules::json::Payload;

    #[derive(serde::Serialize)]
    enum Shape {
        Point,
        Circle(f64),
        Line(f64, Option<f32>),
        Named { width: f64, note: Option<()> },
    }

    #[test]
    fn a_number_that_json_cannot_say_is_refused_wherever_it_stands() {
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Payload::of(&wrong).is_err());
            assert!(Payload::of(&Some(wrong as f32)).is_err());
            assert!(Payload::of(&[1.0, wrong]).is_err());
            assert!(Payload::of(&(1, "a", wrong)).is_err());
            assert!(Payload::of(&BTreeMap::from([("a", vec![wrong])])).is_err());
            assert!(Payload::of(&Shape::Circle(wrong)).is_err());
            assert!(Payload::of(&Shape::Line(wrong, None)).is_err());
            assert!(Payload::of(&Shape::Named { width: wrong, note: None }).is_err());
            let said = Payload::of(&wrong).unwrap_err().to_string();
            assert!(said.contains(&wrong.to_string()), "{said}");
        }
    }

    #[test]
    fn what_is_null_is_kept() {
        let kept = [
            (Payload::of(&None::<f64>), "null"),
            (Payload::of(&()), "null"),
            (Payload::of(&[Some(1.5), None]), "[1.5,null]"),
            (Payload::of(&Shape::Line(2.5, None)), r#"{"Line":[2.5,null]}"#),
            (Payload::of(&Shape::Named { width: 1.5, note: None }), r#"{"Named":{"width":1.5,"note":null}}"#),
            (Payload::of(&(Shape::Point, "null")), r#"["Point","null"]"#),
            (Payload::of(&(i128::from(u64::MAX), None::<u8>)), "[18446744073709551615,null]"),
            (Payload::of(&serde_json::json!({"a": null, "b": 1.5})), r#"{"a":null,"b":1.5}"#),
        ];
        for (payload, text) in kept {
            assert_eq!(payload.unwrap().text(), text);
        }
    }
}
