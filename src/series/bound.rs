//! A query bound to a chunk: its places looked up once for all readings of the chunk.

use super::aggregate::Aggregate;
use super::chunk::{Chunk, Field as Value, Located};
use super::condition::{Condition, Place};
use super::path::Path;
use super::query::Query;
use super::registry::{Origin, Series};

/// A field that is aggregated.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub path: Path,
    /// Where the path leads nowhere.
    pub otherwise: Option<Path>,
}

/// A chunk with the places that the query looks at.
pub(super) struct Bound<'c> {
    chunk: &'c Chunk,
    origin: Option<&'c Origin>,
    condition: Vec<(Place, Option<Located>)>,
    by: Vec<(Place, Option<Located>)>,
    pub fields: Vec<(Located, Option<Located>)>,
}

impl Field {
    pub fn of(aggregate: &Aggregate) -> Self {
        match &aggregate.field {
            Some(path) => Self { path: path.clone(), otherwise: None },
            None => Self { path: Path::name("value"), otherwise: Some(Path::name("payload")) },
        }
    }
}

impl<'c> Bound<'c> {
    pub fn of(query: &Query, fields: &[Field], chunk: &'c Chunk, series: &'c Series) -> Self {
        let bind = |place: &Place| {
            let located = match place {
                Place::At(path) => Some(chunk.locate(path)),
                Place::Topic | Place::ReceivedAt => None,
            };
            (place.clone(), located)
        };
        let places = query.condition.iter().flat_map(Condition::places);
        Self {
            chunk,
            origin: series.origin.as_ref(),
            condition: places.map(bind).collect(),
            by: query.by.iter().map(bind).collect(),
            fields: fields
                .iter()
                .map(|field| {
                    let located = chunk.locate(&field.path);
                    let otherwise = field.otherwise.as_ref().map(|path| chunk.locate(path));
                    match otherwise {
                        Some(otherwise) if chunk.is_nowhere(&located) => (otherwise, None),
                        otherwise => (located, otherwise),
                    }
                })
                .collect(),
        }
    }

    /// The reading's own origin, where the series is shared.
    pub fn own_origin(&self, at: usize) -> Option<Origin> {
        if self.origin.is_some() {
            return None;
        }
        Origin::read(self.chunk.identity(at)?)
    }

    pub fn holds(&self, query: &Query, at: usize, origin: &Origin) -> bool {
        let Some(condition) = &query.condition else { return true };
        condition.holds(&|place| {
            let (place, located) = self.condition.get(place)?;
            self.value(place, located.as_ref(), at, origin)
        })
    }

    fn value<'v>(
        &'v self,
        place: &'v Place,
        located: Option<&Located>,
        at: usize,
        origin: &'v Origin,
    ) -> Option<Value<'v>> {
        match place {
            Place::Topic => Some(Value::Text((&*origin.topic).into())),
            #[expect(
                clippy::cast_precision_loss,
                reason = "milliseconds since 1970 fit a float for 285 000 years"
            )]
            Place::ReceivedAt => Some(Value::Number(*self.chunk.times.get(at)? as f64)),
            Place::At(path) => {
                let field = self.chunk.field(at, located?, path);
                field.or_else(|| Some(Value::Text(origin.tag(path.single()?)?.into())))
            }
        }
    }

    /// The group of all readings of the chunk, if it is one.
    pub fn group(&self) -> Option<Vec<Box<str>>> {
        let origin = self.origin?;
        let names = self.by.iter().map(|(place, located)| match place {
            Place::Topic => Some(origin.topic.clone()),
            Place::ReceivedAt => None,
            Place::At(path) => {
                let is_tag = located.as_ref().is_some_and(|located| self.chunk.is_nowhere(located));
                is_tag.then(|| path.single().and_then(|name| origin.tag(name)).unwrap_or("").into())
            }
        });
        names.collect()
    }

    pub fn group_of(&self, at: usize, origin: &Origin) -> Vec<Box<str>> {
        let name = |(place, located): &(Place, Option<Located>)| match self.value(
            place,
            located.as_ref(),
            at,
            origin,
        ) {
            Some(Value::Text(text)) => text.into(),
            Some(Value::Number(number)) => number.to_string().into(),
            Some(Value::Truth(truth)) => truth.to_string().into(),
            Some(Value::Null) => "null".into(),
            Some(Value::Whole) | None => "".into(),
        };
        self.by.iter().map(name).collect()
    }

    pub fn number(&self, fields: &[Field], field: usize, at: usize) -> Option<f64> {
        let (located, otherwise) = self.fields.get(field)?;
        let paths = fields.get(field)?;
        let at = |located: &Located, path: &Path| match self.chunk.field(at, located, path) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        };
        // Where the first path leads nowhere, the other took its place.
        let first = if otherwise.is_none() && paths.otherwise.is_some() {
            paths.otherwise.as_ref()
        } else {
            Some(&paths.path)
        };
        at(located, first?).or_else(|| at(otherwise.as_ref()?, paths.otherwise.as_ref()?))
    }
}
